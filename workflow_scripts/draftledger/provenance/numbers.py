"""The rows of a summary: read from results or an archive, chosen, and named in a line."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from draftledger.errors import ConfigError, CorruptError
from draftledger.figures.table import with_interval
from draftledger.provenance.graph import MANIFEST, Files
from draftledger.provenance.manifest import parse_manifest

SUMMARY = "summary.parquet"
KEY = ("metric", "arm", "baseline", "scope", "slot")
COLUMNS = [*KEY, "unit", "estimate", "low", "high", "population", "verdict", "decision", "inputs"]
SHOWN = 12  # candidates that an error lists

Number = dict[str, Any]


def read_numbers(files: Files) -> list[Number]:
    """Return the rows of a summary that is as its manifest says; raise CorruptError otherwise."""
    names = set(files.names())
    if not {SUMMARY, SUMMARY + MANIFEST} <= names:
        raise CorruptError(
            f"{SUMMARY}: it or its manifest is not here; run the workflow or name the results with --root"
        )
    data = files.read(SUMMARY)
    manifest = parse_manifest(files.read(SUMMARY + MANIFEST), where=SUMMARY + MANIFEST)
    if hashlib.sha256(data).hexdigest() != manifest.sha256:
        raise CorruptError(f"{SUMMARY}: differs from its manifest; delete both and run its rule again")
    try:
        # Without threads: those of `read_table` may outlive a short command, and Arrow aborts its process then.
        return pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False).select(COLUMNS).to_pylist()
    except (KeyError, OSError, pa.ArrowException) as error:
        raise CorruptError(f"{SUMMARY}: not a summary that can be read ({error}); make it again") from None


def choose(numbers: Sequence[Number], what: str, wanted: Mapping[str, Any]) -> Number:
    """Return the one row of that number (from 0) or metric that has the wanted fields; raise ConfigError otherwise."""
    if what.isdecimal():
        if int(what) < len(numbers):
            return numbers[int(what)]
        raise ConfigError(f"row {what}: the summary has rows 0 to {len(numbers) - 1}")
    found = [row for row in numbers if row["metric"] == what and _has(row, wanted)]
    if not found:
        known = ", ".join(sorted({row["metric"] for row in numbers}))
        raise ConfigError(f"{what}: no row of this metric has what was asked for; the metrics are {known}")
    found = [row for row in found if row["scope"] == "all"] or found
    if len(found) > 1:
        told = "; ".join(name(row) for row in found[:SHOWN]) + ("; …" if len(found) > SHOWN else "")
        raise ConfigError(f"{what}: {len(found)} rows; say which with --arm, --baseline, --scope or --slot: {told}")
    return found[0]


def _has(row: Number, wanted: Mapping[str, Any]) -> bool:
    return all(row[key] == value for key, value in wanted.items())


def name(row: Number) -> str:
    """Return a row in a line: what it measures, and its estimate with interval and unit."""
    against = f" against {row['baseline']}" if row["baseline"] else ""
    slot = f", slot {row['slot']}" if row["slot"] is not None else ""
    where = "" if row["scope"] == "all" else f", {row['scope']}"
    return f"{row['metric']} of {row['arm']}{against}{where}{slot}: {with_interval(row)} {row['unit']}"
