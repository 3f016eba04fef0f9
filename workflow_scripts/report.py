"""Write the report: one self-contained page of findings, figures, numbers and where they come from."""

import json
import sys
from pathlib import Path

from draftledger.provenance.job import Job, run_job


def compute(job: Job) -> None:
    """Write report.html."""
    import pyarrow.parquet as pq

    from draftledger.figures.page import render
    from draftledger.provenance.atomic import write_bytes
    from draftledger.provenance.manifest import read_manifest
    from draftledger.provenance.recipe import read_recipe

    provenance = [
        {"artefact": role, "rule": read_recipe(path)[0].rule, "content_digest": read_manifest(path).content}
        for role, path in job.inputs.items()
    ]
    page = render(
        title=f"draftledger: {job.spec['experiment']}",
        summary=pq.read_table(job.input("summary.parquet")),
        figures={Path(role).stem: path.read_text() for role, path in job.inputs.items() if role.endswith(".svg")},
        environment=json.loads(job.input("environment.json").read_text()),
        provenance=provenance,
    )
    write_bytes(job.out("report.html"), page.encode())


if __name__ == "__main__":
    sys.exit(run_job(compute))
