"""DFlash's training: every mask row is taught its own token at once (Chen et al. 2026, arXiv 2602.06036)."""

from typing import Any

import mlx.nn as nn

from draftledger.training.block_drafter import BlockDrafterObjective
from draftledger.training.data import Windows


def build(model: nn.Module, *, windows: dict[str, Windows], spec: dict[str, Any], seed: int) -> BlockDrafterObjective:
    """Build the objective of one seed."""
    return BlockDrafterObjective(model, train=windows["train"], validation=windows["validation"], spec=spec, seed=seed)
