"""Pack an experiment's finished results for others: one archive, named by version and root digest, and its record."""

import sys

from draftledger.provenance.job import run_job
from draftledger.provenance.release import make_release, with_archive

if __name__ == "__main__":
    sys.exit(run_job(make_release, argv=with_archive(sys.argv[1:])))
