"""Cut the documents into token windows, split by document, and report their overlap with the prompts."""

import sys
from dataclasses import asdict

from draftledger.provenance.job import Job, run_job


def compute(job: Job) -> None:
    """Write train.parquet, validation.parquet and overlap.parquet."""
    import pyarrow.parquet as pq

    from draftledger.corpus.overlap import OverlapRule
    from draftledger.corpus.windows import cut_windows
    from draftledger.measurement.prompts import load_prompts
    from draftledger.models.tokenizer import Tokenizer
    from draftledger.provenance.tables import write_table

    spec = job.spec["windows"]
    tables = cut_windows(
        pq.read_table(job.input("corpus/documents.parquet")),
        tokenizer=Tokenizer.from_folder(job.input("model/tokenizer.json").parent),
        length=spec["length"],
        train=spec["train"],
        validation=spec["validation"],
        seed=spec["seed"],
        prompts=[asdict(prompt) for prompt in load_prompts(job.input(job.spec["prompts"]), split=None)],
        rule=OverlapRule(ngram=spec["overlap_ngram"], bound=spec["overlap_bound"]),
    )
    for name, table in tables.items():
        write_table(table, job.out(f"{name}.parquet"))


if __name__ == "__main__":
    sys.exit(run_job(compute))
