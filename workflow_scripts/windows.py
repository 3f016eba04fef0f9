"""Cut the documents, or the target's answers, into token windows, and report their overlap with the prompts."""

import sys
from dataclasses import asdict

from draftledger.provenance.job import Job, run_job


def compute(job: Job) -> None:
    """Write train.parquet, validation.parquet and overlap.parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from draftledger.corpus.answers import AnswerRule, answer_windows
    from draftledger.corpus.overlap import OverlapRule
    from draftledger.corpus.windows import cut_windows
    from draftledger.measurement.prompts import load_prompts
    from draftledger.models.tokenizer import Tokenizer
    from draftledger.provenance.tables import write_table

    spec = job.spec["windows"]
    shared = {
        "tokenizer": Tokenizer.from_folder(job.input("model/tokenizer.json").parent),
        "sizes": {split: spec[split] for split in ("train", "validation")},
        "seed": spec["seed"],
        "prompts": [asdict(prompt) for prompt in load_prompts(job.input(job.spec["prompts"]), split=None)],
        "overlap": OverlapRule(ngram=spec["overlap_ngram"], bound=spec["overlap_bound"]),
    }
    answers = [pq.read_table(path) for name, path in job.inputs.items() if "/answers-" in name]
    if answers:
        rule = AnswerRule(length=spec["length"], **job.spec["answers"])
        tables = answer_windows(pa.concat_tables(answers).to_pylist(), rule=rule, **shared)
    else:
        documents = pq.read_table(job.input("corpus/documents.parquet"))
        tables = cut_windows(documents, length=spec["length"], **shared)
    for name, table in tables.items():
        write_table(table, job.out(f"{name}.parquet"))


if __name__ == "__main__":
    sys.exit(run_job(compute))
