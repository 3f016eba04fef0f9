"""One file out of a published drafter: its tensors as they are, its config.json in the metadata, checked before."""

from pathlib import Path
from typing import Any

from draftledger.drafters.formats.checkpoint import inspect
from draftledger.drafters.formats.files import Files, scan
from draftledger.drafters.formats.lora import check_lora
from draftledger.errors import UnsupportedError
from draftledger.models.folder import write_safetensors
from draftledger.provenance.digest import CONFIG_KEY, canonical_json


def publish(source: Path, out: Path, *, spec: dict[str, Any]) -> None:
    """Write a published drafter of the configured kind as one safetensors file; a refused one writes nothing.

    Raises UnsupportedError for another kind, or for tensors that are missing, left over or mis-shaped.
    """
    files = _lora(source, spec) if spec["kind"] == "block_lora" else _drafter(source, spec)
    metadata = {} if files.config is None else {CONFIG_KEY: canonical_json(files.config).decode()}
    write_safetensors(out, files.tensors, metadata=metadata)


def _lora(source: Path, spec: dict[str, Any]) -> Files:
    files = scan(source)
    shapes = {name: tensor.shape for name, tensor in files.tensors.items()}
    check_lora(shapes, rank=spec["rank"], modules=spec["modules"], where=str(source))
    return files


def _drafter(source: Path, spec: dict[str, Any]) -> Files:
    found = inspect(source)
    kind, name = found.packaging.kind, found.packaging.name
    if kind != spec["kind"]:
        raise UnsupportedError(f"{source}: is a {kind} drafter ({name}), the config says {spec['kind']}")
    return found.files
