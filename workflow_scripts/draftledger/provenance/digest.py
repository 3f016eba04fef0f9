"""Identities of values and files: canonical JSON, file digests, and content digests that survive re-encoding."""

import hashlib
import json
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from draftledger.errors import CorruptError
from draftledger.provenance.tables import counts_of

MAX_HEADER_BYTES = 100_000_000
# Metadata key under which a drafter's file carries its settings; like Parquet's counts it is part of the content.
CONFIG_KEY = "draftledger.config"


def canonical_json(value: Any) -> bytes:
    """Encode plain JSON types in their one form: sorted keys, no spaces, no NaN.

    Raises TypeError for values without a stable form and ValueError for NaN or infinity.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def digest(value: Any) -> str:
    """Return the sha256 of a plain value's canonical JSON."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def file_digest(path: Path) -> str:
    """Return the sha256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tensor_digests(path: Path) -> dict[str, str]:
    """Return each tensor's digest over name, dtype, shape and bytes, so header order does not matter.

    Raises CorruptError when the header is oversized, unreadable or points outside the file.
    """
    with open(path, "rb") as file:
        head = file.read(8)
        if len(head) < 8:
            raise CorruptError(f"{path}: too short for a safetensors file; make it again")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            start, header, _ = _safetensors_header(path, data)
            try:
                return {name: _tensor_digest(path, data, start, name, item) for name, item in sorted(header.items())}
            except (KeyError, TypeError, ValueError) as error:
                told = f"{path}: its safetensors header does not describe tensors ({error!r}); make the file again"
                raise CorruptError(told) from None


def stored_config(path: Path) -> str | None:
    """Return the settings, as JSON text, that a safetensors file carries beside its tensors, or null without any."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        _, _, metadata = _safetensors_header(path, data)
        found = metadata.get(CONFIG_KEY) if isinstance(metadata, dict) else None
        return found if isinstance(found, str) else None


def _safetensors_header(path: Path, data: mmap.mmap) -> tuple[int, dict[str, Any], Any]:
    (size,) = struct.unpack("<Q", data[:8])
    if size > min(MAX_HEADER_BYTES, len(data) - 8):
        raise CorruptError(f"{path}: safetensors header claims {size} bytes; make the file again")
    try:
        header = json.loads(data[8 : 8 + size])
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"{path}: unreadable safetensors header ({error}); make the file again") from None
    if not isinstance(header, dict):
        raise CorruptError(f"{path}: its safetensors header is not an object; make the file again")
    metadata = header.pop("__metadata__", None)
    return 8 + size, header, metadata


def _tensor_digest(path: Path, data: mmap.mmap, start: int, name: str, item: dict[str, Any]) -> str:
    begin, end = item["data_offsets"]
    if not 0 <= begin <= end <= len(data) - start:
        raise CorruptError(f"{path}: tensor {name} lies outside the file; make the file again")
    seal = hashlib.sha256(canonical_json([name, item["dtype"], item["shape"]]))
    with memoryview(data) as view:
        seal.update(view[start + begin : start + end])
    return seal.hexdigest()


def table_digest(path: Path) -> str:
    """Return the digest of a Parquet table's schema, counts and sorted rows, whatever wrote it."""
    try:
        table = pq.read_table(path)
    except OSError as error:
        if error.errno is None:  # Arrow's word for a damaged file, not the system's
            raise CorruptError(f"{path}: unreadable ({error}); make the file again") from None
        raise
    schema = [[field.name, _kind(field.type)] for field in table.schema]
    rows = sorted(_row_digests(table))
    return hashlib.sha256(canonical_json([schema, counts_of(table, where=path)]) + b"".join(rows)).hexdigest()


def _kind(kind: pa.DataType) -> str:
    """Name a type by its values: writers differ in dictionaries, in offsets and in what a list's items are called."""
    if pa.types.is_dictionary(kind):
        return _kind(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{_kind(kind.value_type)}>"
    return str(kind).removeprefix("large_")


def _row_digests(table: pa.Table) -> Iterator[bytes]:
    for batch in table.to_batches(max_chunksize=4096):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield hashlib.sha256(canonical_json(row)).digest()


def content_digest(path: Path) -> str:
    """Return what a file says rather than how it is encoded: per tensor, per sorted row, or canonical JSON.

    Other kinds of file are their bytes. Raises CorruptError when the file cannot be read as its suffix says.
    """
    try:
        match path.suffix:
            case ".safetensors":
                tensors, config = tensor_digests(path), stored_config(path)
                return digest(tensors if config is None else {**tensors, "__metadata__": config})
            case ".parquet":
                return table_digest(path)
            case ".json":
                return digest(json.loads(path.read_bytes()))
    except (TypeError, ValueError, RecursionError, pa.ArrowException) as error:
        raise CorruptError(f"{path}: unreadable ({error}); make the file again") from None
    return file_digest(path)
