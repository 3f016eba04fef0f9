"""The `draftledger` command: look at results, check them, explain them; each group of sub-commands is a module."""

import argparse
import sys
from collections.abc import Callable, Sequence

from draftledger.cli import audit, check, drafters, explain, look, upkeep
from draftledger.errors import DraftledgerError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command; return the exit code, with errors as one line on stderr."""
    options = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = options.run
    try:
        return command(options)
    except DraftledgerError as error:
        print(f"draftledger: error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"draftledger: error: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="draftledger", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for group in (look, check, audit, explain, upkeep, drafters):
        group.add(commands)
    return parser
