"""Collect the documents of the corpus, duplicates dropped and counted."""

import sys
from collections import Counter

from draftledger.provenance.job import Job, run_job


def compute(job: Job) -> None:
    """Read the configured source and write one row a document."""
    from draftledger.corpus.document import documents_table
    from draftledger.corpus.sources import read_documents
    from draftledger.provenance.tables import write_table

    counts: Counter[str] = Counter()
    table = documents_table(read_documents(job.spec, job.partial, counts=counts), counts)
    write_table(table, job.out("documents.parquet"))


if __name__ == "__main__":
    sys.exit(run_job(compute))
