"""The figures' stage: from the summary, cost curves and training histories to one SVG a figure."""

import pyarrow as pa
import pyarrow.parquet as pq

from draftledger.figures import categories, cost, cycle, learning, speedup, style, survival
from draftledger.provenance.job import Job


def draw_figures(job: Job) -> None:
    """Write one SVG a figure; an absent metric gives a note, never a failure."""
    summary = pq.read_table(job.input("summary.parquet"))
    costs = [pq.read_table(path) for role, path in job.inputs.items() if role.endswith(".cost.parquet")]
    histories: dict[str, list[pa.Table]] = {}
    for path in job.many("history.parquet"):
        histories.setdefault(path.parent.parent.name, []).append(pq.read_table(path))
    for name, figure in (("speedup", speedup), ("survival", survival), ("cycle", cycle), ("categories", categories)):
        style.save(figure.draw(summary), job.out(f"{name}.svg"))
    style.save(cost.draw(pa.concat_tables([table.replace_schema_metadata() for table in costs])), job.out("cost.svg"))
    style.save(learning.draw(histories), job.out("learning.svg"))
