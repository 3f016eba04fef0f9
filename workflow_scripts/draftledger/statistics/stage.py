"""The summary's stage: from the rows of a job's inputs to the numbers and their twins for people."""

from draftledger.figures.table import tsv
from draftledger.measurement.tables import by_role, load_all
from draftledger.provenance.atomic import write_bytes
from draftledger.provenance.job import Facts, Job
from draftledger.provenance.tables import with_counts, write_table
from draftledger.statistics.decision import load_decision
from draftledger.statistics.predictions import judge
from draftledger.statistics.summary import build_summary


def write_summary(job: Job) -> Facts:
    """Write summary.parquet, summary.tsv and summary.html; return which predictions held."""
    statistics = job.spec["statistics"]
    decision = load_decision(job.input("config/decision.yaml"), dtype=job.spec["dtype"])
    table = build_summary(
        rounds=load_all(job, "rounds.parquet"),
        positions=load_all(job, "positions.parquet"),
        timing=load_all(job, "timing"),
        arms=job.spec["arms"],
        decision=decision,
        bootstrap=statistics["bootstrap"],
        confidence=statistics["confidence"],
        inputs=by_role(job),
    )
    write_table(with_counts(table, {"numbers": table.num_rows}), job.out("summary.parquet"))
    write_bytes(job.out("summary.tsv"), tsv(table).encode())
    write_bytes(job.out("summary.html"), table.to_pandas().to_html(index=False).encode())
    held = judge(decision, table)
    return {"predictions": [{**rule, "held": fact} for rule, fact in zip(decision.predictions, held, strict=True)]}
