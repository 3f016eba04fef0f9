"""Training checkpoints: whole or absent, the latest wins, and a resumed run equals an unbroken one to the bit."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from draftledger.arrays import leaves, load_with_metadata, save_tensors

KEPT = 2


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Weights, flattened optimiser state, number of finished steps, and the history rows so far."""

    weights: dict[str, mx.array]
    optimiser: dict[str, mx.array]
    step: int
    history: list[dict[str, Any]]


def save_checkpoint(
    folder: Path, step: int, weights: dict[str, mx.array], optimiser: Any, history: list[dict[str, Any]]
) -> None:
    """Write the checkpoint of `step` atomically and drop all but the last two."""
    arrays = {f"weights/{name}": array for name, array in weights.items()}
    arrays |= {f"optimiser/{name}": array for name, array in leaves(optimiser).items()}
    scratch = folder / f".{os.getpid()}.safetensors"
    save_tensors(scratch, arrays, metadata={"history": json.dumps(history)})
    with open(scratch, "rb") as file:
        os.fsync(file.fileno())
    os.replace(scratch, folder / f"step-{step:07d}.safetensors")
    for old in sorted(folder.glob("step-*.safetensors"))[:-KEPT]:
        old.unlink()


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """Read the latest checkpoint in a folder, or null when there is none; what a kill cut short is ignored."""
    found = sorted(folder.glob("step-*.safetensors"))
    if not found:
        return None
    arrays, metadata = load_with_metadata(found[-1])
    parts: dict[str, dict[str, mx.array]] = {"weights": {}, "optimiser": {}}
    for name, array in arrays.items():
        group, key = name.split("/", 1)
        parts[group][key] = array
    mx.eval(parts)
    step = int(found[-1].stem.split("-")[1])
    return Checkpoint(parts["weights"], parts["optimiser"], step, json.loads(metadata["history"]))
