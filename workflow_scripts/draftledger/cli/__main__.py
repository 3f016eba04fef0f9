"""Run the command as `python -m draftledger.cli`."""

import sys

from draftledger.cli import main

sys.exit(main())
