"""Read a published drafter: its configuration and its tensors under internal names, or one line saying why not."""

from pathlib import Path

import mlx.core as mx

from draftledger.arrays import integers, load_tensors
from draftledger.drafters.formats.checkpoint import Checkpoint, inspect
from draftledger.drafters.formats.checks import DrafterConfig
from draftledger.drafters.formats.nvfp4 import packed_names, unpacked
from draftledger.errors import UnsupportedError


def read(path: Path) -> tuple[DrafterConfig, dict[str, mx.array]]:
    """Return a drafter's configuration and every tensor by its internal name, lazily where the file allows it.

    `path` is a checkpoint folder, or a safetensors file with its config in its metadata, such as a published adapter.
    Raises SourceError for files that are missing or broken, UnsupportedError for what is not a whole known drafter.
    """
    found = inspect(path)
    config, tensors = found.config, _tensors(found)
    if "d2t" in tensors:
        _check_map(tensors["d2t"], config.vocab_size, where=str(path))
    return config, tensors


def _check_map(offsets: mx.array, vocabulary: int, *, where: str) -> None:
    """Refuse a draft vocabulary whose ids (own number + offset) are not distinct ids of the target."""
    ids = integers(mx.arange(offsets.size) + offsets)
    if len(set(ids)) < len(ids) or not 0 <= min(ids) <= max(ids) < vocabulary:
        raise UnsupportedError(f"{where}: d2t does not map to distinct ids of the target's {vocabulary}")


def _tensors(found: Checkpoint) -> dict[str, mx.array]:
    stored = {name: array for path in found.files.paths for name, array in load_tensors(path).items()}
    packed = packed_names(found.files.tensors)
    tensors = {}
    for internal, name in found.names.items():
        array = mx.array(unpacked(name, found.files.tensors)).astype(mx.bfloat16) if name in packed else stored[name]
        offset = found.packaging.offset_norms and internal.endswith("norm.weight")
        tensors[internal] = (array.astype(mx.float32) + 1).astype(array.dtype) if offset else array
    return tensors
