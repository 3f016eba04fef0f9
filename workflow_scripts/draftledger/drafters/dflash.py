"""DFlash: every mask row of the block guesses its own token, all in one pass (Chen et al. 2026, arXiv 2602.06036)."""

from pathlib import Path
from typing import Any

import mlx.nn as nn

from draftledger.drafters.base import Adapter, DraftContext
from draftledger.drafters.block_adapter import load_adapter, module_of
from draftledger.drafters.block_drafter import BlockDrafter
from draftledger.drafters.initial import untrained_adapter


def load(spec: dict[str, Any], path: Path, *, model: nn.Module) -> Adapter:
    """Load a published or trained drafter for this target."""
    return load_adapter(spec, path, model=model)


def untrained(spec: dict[str, Any], *, model: nn.Module) -> Adapter:
    """Return the drafter that training starts from."""
    return untrained_adapter(spec, model=model)


def build(context: DraftContext) -> BlockDrafter:
    """Build an answer's drafter."""
    return BlockDrafter(module_of(context), sampling=context.sampling)
