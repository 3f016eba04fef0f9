"""Decode every prompt with one arm and check every emitted token."""

import sys

from draftledger.provenance.job import Job, run_job


def compute(job: Job) -> None:
    """Write rounds.parquet and positions.parquet; a token that is not the target's own fails the job."""
    from draftledger.models.open import open_target

    target = open_target(job)
    from draftledger.measurement.decoding import decode_prompts, load_prompt_ids
    from draftledger.provenance.tables import write_table

    prompts = load_prompt_ids(job, target)
    rounds, positions = decode_prompts(job, target, prompts)
    write_table(rounds, job.out("rounds.parquet"))
    write_table(positions, job.out("positions.parquet"))


if __name__ == "__main__":
    sys.exit(run_job(compute))
