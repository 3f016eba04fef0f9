"""The row of `summary.parquet`: one reported number with everything a reader needs to judge it."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise

import pyarrow as pa

from draftledger.errors import DraftledgerError
from draftledger.statistics.intervals import NONE, Interval

SCHEMA = pa.schema(
    [
        pa.field("metric", pa.string(), nullable=False),
        pa.field("arm", pa.string(), nullable=False),
        pa.field("baseline", pa.string()),
        pa.field("scope", pa.string(), nullable=False),
        pa.field("slot", pa.int32()),
        pa.field("unit", pa.string(), nullable=False),
        pa.field("estimate", pa.float64(), nullable=False),
        *(pa.field(name, pa.float64()) for name in ("low", "high", "confidence")),
        pa.field("population", pa.string(), nullable=False),
        *(
            pa.field(f"n_{level}", pa.int32(), nullable=False)
            for level in ("seeds", "launches", "prompts", "sessions", "rounds")
        ),
        *(pa.field(name, pa.float64()) for name in ("floor", "mde")),
        pa.field("verdict", pa.string()),
        pa.field("decision", pa.string(), nullable=False),
        pa.field("inputs", pa.list_(pa.string()), nullable=False),
    ]
)
FLOATS = ("estimate", "low", "high", "confidence", "floor", "mde")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One number; counts are those of the units behind it, 0 where a level does not apply."""

    metric: str
    arm: str
    unit: str
    decision: str
    inputs: tuple[str, ...]
    estimate: float = float("nan")
    baseline: str | None = None
    scope: str = "all"
    slot: int | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    population: str = NONE
    n_seeds: int = 0
    n_launches: int = 0
    n_prompts: int = 0
    n_sessions: int = 0
    n_rounds: int = 0
    floor: float | None = None
    mde: float | None = None
    verdict: str | None = None

    def with_interval(self, interval: Interval) -> "Row":
        """The row with the interval's numbers; confidence stays empty where there are no ends."""
        return replace(
            self,
            estimate=interval.estimate,
            low=interval.low,
            high=interval.high,
            confidence=None if interval.low is None else interval.confidence,
            population=interval.population,
        )

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What tells this number from every other in the summary."""
        return self.metric, self.arm, self.baseline or "", self.scope, self.slot or 0


def to_table(rows: Iterable[Row]) -> pa.Table:
    """Sort the rows and round floats to 12 significant digits; raises DraftledgerError for a repeated key."""
    ordered = sorted(rows, key=lambda row: row.key)
    for first, second in pairwise(ordered):
        if first.key == second.key:
            raise DraftledgerError(f"summary: two rows for {first.key}; a metric is defined twice")
    return pa.Table.from_pylist([_record(row) for row in ordered], schema=SCHEMA)


def _record(row: Row) -> dict[str, object]:
    record = asdict(row)
    for name in FLOATS:
        value = record[name]
        record[name] = None if value is None else float(f"{value:.12g}") + 0.0
    return record
