"""A manifest says what a payload is: a pure function of its bytes, so equal bytes stop the cascade."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from draftledger.errors import CorruptError
from draftledger.provenance.atomic import write_json
from draftledger.provenance.digest import content_digest, file_digest, tensor_digests
from draftledger.provenance.tables import counts_of

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one payload is: its name, size in bytes, file and content digests, and counts that close."""

    name: str
    kind: str
    bytes: int
    sha256: str
    content: str
    counts: dict[str, int]
    schema: int = SCHEMA


def manifest_path(payload: Path) -> Path:
    """Return where a payload's manifest lies: beside it."""
    return payload.with_name(payload.name + ".manifest.json")


def describe(payload: Path) -> Manifest:
    """Make the manifest of a payload from its bytes."""
    kind = payload.suffix.lstrip(".") or "file"
    size, sha256 = payload.stat().st_size, file_digest(payload)
    return Manifest(payload.name, kind, size, sha256, content_digest(payload), _counts(payload))


def _counts(payload: Path) -> dict[str, int]:
    match payload.suffix:
        case ".parquet":
            head = pq.read_metadata(payload)
            return {"rows": head.num_rows, **counts_of(head.schema.to_arrow_schema(), where=payload)}
        case ".safetensors":
            return {"tensors": len(tensor_digests(payload))}
    return {}


def write_manifest(payload: Path, manifest: Manifest) -> None:
    """Write a payload's manifest beside it; always the last write of a stage."""
    write_json(manifest_path(payload), asdict(manifest))


def read_manifest(payload: Path) -> Manifest:
    """Read a payload's manifest; raise CorruptError when it is absent, unreadable or of a newer schema."""
    path = manifest_path(payload)
    try:
        return parse_manifest(path.read_bytes(), where=path)
    except FileNotFoundError:
        raise CorruptError(f"{path}: absent; run the rule that makes {payload.name} again") from None


def parse_manifest(data: bytes, *, where: object) -> Manifest:
    """Read a manifest from its bytes; raise CorruptError, naming `where`, when unreadable or of a newer schema."""
    try:
        fields: dict[str, Any] = json.loads(data)
        if fields["schema"] != SCHEMA:
            raise CorruptError(
                f"{where}: schema {fields['schema']!r:.20} is not {SCHEMA}; use the release that wrote it"
            )
        return Manifest(**fields)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptError(f"{where}: unreadable manifest ({error}); run its rule again") from None


def verified(payload: Path) -> Manifest:
    """Return a payload's manifest after re-hashing the payload; raise CorruptError when they differ."""
    manifest = read_manifest(payload)
    if not payload.is_file():
        raise CorruptError(f"{payload}: absent; run the rule that makes it again")
    if payload.stat().st_size != manifest.bytes or file_digest(payload) != manifest.sha256:
        raise CorruptError(f"{payload}: differs from its manifest; delete both and run its rule again")
    return manifest
