"""The summary's inputs, gathered over arms, seeds and sessions."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from draftledger.errors import CorruptError
from draftledger.provenance.job import Job
from draftledger.provenance.manifest import read_manifest


def load_all(job: Job, kind: str) -> pa.Table:
    """Return all rows of a kind: `rounds.parquet`, `positions.parquet` or `timing`; counts must close."""
    paths = [path for role, path in job.inputs.items() if _kind(role) == kind]
    tables = [pq.read_table(path) for path in paths]
    expected = sum(read_manifest(path).counts["rows"] for path in paths)
    table = pa.concat_tables([table.replace_schema_metadata() for table in tables])
    if table.num_rows != expected:
        raise CorruptError(f"summary: {kind} has {table.num_rows} rows, its manifests say {expected}; run them again")
    return table


def by_role(job: Job) -> dict[str, list[str]]:
    """Return the content digests behind each arm's numbers: `rounds:<arm>`, `positions:<arm>`, `timing`."""
    found: dict[str, list[str]] = {}
    for role, path in job.inputs.items():
        kind = _kind(role)
        if kind:
            name = "timing" if kind == "timing" else f"{kind.removesuffix('.parquet')}:{Path(role).parts[1]}"
            found.setdefault(name, []).append(read_manifest(path).content)
    return found


def _kind(role: str) -> str | None:
    parts = Path(role).parts
    return {"decode": parts[-1], "timing": "timing"}.get(parts[0])
