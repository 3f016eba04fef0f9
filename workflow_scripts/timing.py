"""Time all arms, interleaved in one process, for one seed and session."""

import sys

from draftledger.provenance.job import Job, run_job


def compute(job: Job) -> None:
    """Write the session's rows and its cost-against-width table, holding the machine-wide timing lock."""
    from draftledger.measurement.telemetry import timing_lock
    from draftledger.models.backend import prepare

    prepare(job.environment or {})
    from draftledger.measurement.decoding import load_prompt_ids
    from draftledger.measurement.timing import cost_table, load_arms, time_session
    from draftledger.models.load import load_target
    from draftledger.provenance.tables import write_table

    name = f"session{job.spec['session']}"
    with timing_lock():
        target = load_target(job.input("model/config.json").parent, dtype=(job.environment or {})["dtype"])
        prompts, arms = load_prompt_ids(job, target), load_arms(job, target)
        write_table(time_session(job, target, prompts, arms), job.out(f"{name}.parquet"))
        write_table(cost_table(target, prompts, arms), job.out(f"{name}.cost.parquet"))


if __name__ == "__main__":
    sys.exit(run_job(compute, nature="draw"))
