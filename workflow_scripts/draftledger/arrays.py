"""MLX calls whose stubs promise too little, with the types that our uses of them have."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten

from draftledger.errors import StorageError


def load_tensors(path: Path) -> dict[str, mx.array]:
    """Read every tensor of a safetensors file by name."""
    return cast(dict[str, mx.array], mx.load(str(path)))


def load_with_metadata(path: Path) -> tuple[dict[str, mx.array], dict[str, str]]:
    """Read a safetensors file's tensors by name, and its metadata."""
    return cast(tuple[dict[str, mx.array], dict[str, str]], mx.load(str(path), return_metadata=True))


def save_tensors(path: Path, tensors: Mapping[str, mx.array], *, metadata: dict[str, str] | None = None) -> None:
    """Write tensors sorted by name; raise StorageError when the disk refuses them."""
    try:
        mx.save_safetensors(str(path), dict(sorted(tensors.items())), metadata=metadata)
    except RuntimeError as error:
        path.unlink(missing_ok=True)
        raise StorageError(
            f"{path}: could not be written ({error}); free space or fix access, then run again"
        ) from None


def leaves(tree: Any) -> dict[str, mx.array]:
    """Return the arrays of a tree by dotted name."""
    return dict(cast(list[tuple[str, mx.array]], tree_flatten(tree)))


def rolled(array: mx.array, turn: int) -> mx.array:
    """Return an array whose rows are `turn` places further down, the last ones first."""
    return mx.concatenate([array[-turn:], array[:-turn]]) if turn % array.shape[0] else array


def number(scalar: mx.array) -> float:
    """Return an evaluated scalar."""
    return float(cast(float, scalar.item()))


def integers(array: mx.array) -> list[int]:
    """Return an evaluated one-dimensional array of ids as a list."""
    # Reading even an empty array would wait for everything that is queued on the device.
    return cast(list[int], array.tolist()) if array.size else []
