"""docs/formats.md has the columns of the code's schemas, and the workflow's picture has the rules there are."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from draftledger.corpus import document, overlap, windows
from draftledger.figures import dag
from draftledger.measurement import rows, timing
from draftledger.statistics import rows as summary
from draftledger.teacher import continuations, shards
from draftledger.training import trainer

ROOT = Path(__file__).resolve().parents[2]
FORMATS = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
SCHEMAS = {
    "corpus/documents.parquet": document.SCHEMA,
    "continuations/answers-{job}.parquet": continuations.SCHEMA,
    "windows/{split}.parquet": windows.SCHEMA,
    "windows/overlap.parquet": overlap.SCHEMA,
    "teacher/{split}-{shard}.bounds.parquet": shards.BOUNDS,
    "adapters/{drafter}/{draw}/history.parquet": trainer.HISTORY,
    "decode/{arm}/{draw}/rounds.parquet": rows.ROUNDS,
    "decode/{arm}/{draw}/positions.parquet": rows.POSITIONS,
    "timing/{draw}/session{n}.parquet": timing.TIMING,
    "timing/{draw}/session{n}.cost.parquet": timing.COST,
    "summary.parquet": summary.SCHEMA,
}
NAMES = {"float": "float32", "double": "float64"}


def sections() -> dict[str, str]:
    parts = re.split(r"^## `([^`]+)`.*$", FORMATS, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def told(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"list<{told(kind.value_type)}>"
    return NAMES.get(str(kind), str(kind))


@pytest.mark.parametrize("name", SCHEMAS)
def test_columns_are_those_of_the_schema(name: str) -> None:
    written = re.findall(r"^\| `(\w+)` \| (\S+) \| \S", sections()[name], re.MULTILINE)
    assert written == [(field.name, told(field.type)) for field in SCHEMAS[name]]


def test_every_parquet_file_is_described() -> None:
    assert {name for name in sections() if name.endswith(".parquet")} == set(SCHEMAS)


def test_the_picture_shows_the_rules_there_are() -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "rules").glob("*.smk"))]
    rules = {name for text in texts for name in re.findall(r"^rule (\w+):", text, re.MULTILINE)}
    assert {rule for rule, _ in dag.WORKFLOW} == rules
