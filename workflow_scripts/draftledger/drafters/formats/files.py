"""The files of a published drafter: safetensors and one config.json, nothing outside the folder, nothing executed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftledger.errors import SourceError, UnsupportedError
from draftledger.models.folder import Tensor, read_json, scan_safetensors
from draftledger.models.sources import weight_files
from draftledger.provenance.digest import stored_config

# What a folder may hold instead of safetensors, and why it is not read.
REFUSED = {
    "*.gguf": "GGUF drafters (PrismML Bonsai) are not read; convert it to safetensors",
    "*.bin": "pickled weights can run code; ask for safetensors",
    "*.pt": "pickled weights can run code; ask for safetensors",
    "*.pth": "pickled weights can run code; ask for safetensors",
}


@dataclass(frozen=True, slots=True)
class Files:
    """A drafter's weight files, the tensors in them, unread, and its config, null for a bare file without one."""

    paths: tuple[Path, ...]
    tensors: dict[str, Tensor]
    config: dict[str, Any] | None


def scan(path: Path) -> Files:
    """Look at a checkpoint folder, or at one safetensors file that carries its config in its metadata.

    Raises SourceError for a missing, broken or doubled part, UnsupportedError for weights that are not safetensors.
    """
    if not path.is_dir():
        if path.suffix != ".safetensors":
            raise UnsupportedError(f"{path}: a drafter is a .safetensors file or a folder of them")
        tensors = scan_safetensors(_inside(path))
        return Files((path,), tensors, _stored(path))
    _refuse_others(path)
    config = read_json(_inside(path / "config.json"))
    paths = tuple(_inside(path / name) for name in weight_files(path, stem="*"))
    tensors: dict[str, Tensor] = {}
    for shard in paths:
        found = scan_safetensors(shard)
        if twice := sorted(tensors.keys() & found.keys()):
            raise SourceError(f"{shard}: {twice[0]} stands in another shard too; fetch the drafter again")
        tensors |= found
    _check_index(path, tensors)
    return Files(paths, tensors, config)


def _stored(path: Path) -> dict[str, Any] | None:
    text = stored_config(path)
    try:
        config = None if text is None else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: the config in its metadata is not JSON; fetch it again") from error
    if config is not None and not isinstance(config, dict):
        raise SourceError(f"{path}: the config in its metadata is no JSON object; fetch it again")
    return config


def _refuse_others(folder: Path) -> None:
    if any(folder.glob("*.safetensors")):
        return
    for pattern, reason in REFUSED.items():
        if found := sorted(folder.glob(pattern)):
            raise UnsupportedError(f"{found[0]}: {reason}")


def _inside(path: Path) -> Path:
    """Refuse a file that a link leads out of its folder; the hub's cache keeps its files beside its snapshots."""
    if not path.is_file():
        raise SourceError(f"{path}: is missing; fetch the drafter again")
    home, real = path.parent.resolve(), path.resolve()
    if not (real.is_relative_to(home) or real.is_relative_to(home.parent.parent / "blobs")):
        raise SourceError(f"{path}: is a link out of its folder, to {real}; copy the file there instead")
    return path


def _check_index(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    for index in sorted(folder.glob("*.safetensors.index.json")):
        if missing := sorted(set(read_json(index)["weight_map"]) - set(tensors)):
            raise SourceError(f"{index}: tensor {missing[0]} is in no shard; fetch the drafter again")
