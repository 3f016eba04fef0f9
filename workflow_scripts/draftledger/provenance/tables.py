"""Parquet tables that carry their own counts and are written the same way every time."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from draftledger.errors import CorruptError
from draftledger.provenance.atomic import write_bytes

COUNTS_KEY = b"draftledger.counts"
ROW_GROUP = 65_536


def close_counts(counts: Mapping[str, int], *, whole: str, parts: Iterable[str]) -> None:
    """Check that `counts[whole]` is the sum of `parts` (an absent part is 0), or raise CorruptError."""
    pieces = {part: counts.get(part, 0) for part in parts}
    if counts.get(whole) != sum(pieces.values()):
        told = ", ".join(f"{part} {number}" for part, number in pieces.items())
        raise CorruptError(f"counts do not close: {whole} is {counts.get(whole)}, but {told}; no row may vanish")


def with_counts(table: pa.Table, counts: Mapping[str, int]) -> pa.Table:
    """Return `table` with `counts` in its schema metadata as sorted JSON; other metadata is kept."""
    wrong = [name for name, number in counts.items() if not _is_count(number)]
    if wrong:
        raise CorruptError(f"counts {', '.join(sorted(wrong))}: every count must be a whole number of at least 0")
    stored = json.dumps(dict(counts), sort_keys=True, separators=(",", ":"))
    return table.replace_schema_metadata({**(table.schema.metadata or {}), COUNTS_KEY: stored.encode()})


def counts_of(table: pa.Table | pa.Schema, *, where: object = "a table") -> dict[str, int]:
    """Return the counts that `with_counts` stored; none in a table that this workflow did not write."""
    schema = table.schema if isinstance(table, pa.Table) else table
    stored = (schema.metadata or {}).get(COUNTS_KEY, b"{}")
    try:
        counts = json.loads(stored)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"{where}: its counts are not JSON ({error}); make it again") from None
    if not isinstance(counts, dict) or not all(map(_is_count, counts.values())):
        raise CorruptError(f"{where}: its counts are not whole numbers; make it again")
    return counts


def write_table(table: pa.Table, path: Path) -> None:
    """Write `table` as parquet so that equal tables make equal bytes (for one pyarrow version).

    The file appears whole or not at all; pandas metadata is dropped.
    """
    metadata = {k: v for k, v in sorted((table.schema.metadata or {}).items()) if k != b"pandas"}
    # One chunk a column: page edges would otherwise follow the history of the table.
    plain = table.combine_chunks().replace_schema_metadata(metadata or None)
    sink = pa.BufferOutputStream()
    pq.write_table(
        plain,
        sink,
        version="2.6",
        data_page_version="1.0",
        compression="zstd",
        compression_level=3,
        use_dictionary=True,
        write_statistics=True,
        row_group_size=ROW_GROUP,
        store_schema=True,
    )
    write_bytes(path, sink.getvalue().to_pybytes())


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
