"""Turn rows into reported numbers: summary.parquet, and its twins for people."""

import sys

from draftledger.provenance.job import Facts, Job, run_job


def compute(job: Job) -> Facts:
    """Write summary.parquet, summary.tsv and summary.html; the run record says which predictions held."""
    from draftledger.statistics.stage import write_summary

    return write_summary(job)


if __name__ == "__main__":
    sys.exit(run_job(compute))
