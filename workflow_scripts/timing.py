"""Time all arms, interleaved in one process, for one seed and session."""

import sys

from draftledger.provenance.job import Job, run_job


def compute(job: Job) -> None:
    """Write the session's rows and its cost-against-width table, holding the machine-wide timing lock."""
    from draftledger.measurement.telemetry import timing_lock
    from draftledger.models.open import open_target

    name = f"session{job.spec['session']}"
    with timing_lock():
        target = open_target(job)
        from draftledger.measurement.decoding import load_prompt_ids
        from draftledger.measurement.timing import cost_table, load_arms, time_session
        from draftledger.provenance.tables import write_table

        prompts, arms = load_prompt_ids(job, target), load_arms(job, target)
        write_table(time_session(job, target, prompts, arms), job.out(f"{name}.parquet"))
        write_table(cost_table(target, prompts, arms), job.out(f"{name}.cost.parquet"))


if __name__ == "__main__":
    sys.exit(run_job(compute, nature="draw"))
