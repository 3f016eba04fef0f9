"""DFlash: every mask row of the block guesses its own token, all in one pass (Chen et al. 2026, arXiv 2602.06036)."""

from draftledger.drafters.base import DraftContext
from draftledger.drafters.block_adapter import load as load
from draftledger.drafters.block_adapter import module_of
from draftledger.drafters.block_drafter import BlockDrafter
from draftledger.drafters.initial import untrained as untrained


def build(context: DraftContext) -> BlockDrafter:
    """Build an answer's drafter."""
    return BlockDrafter(module_of(context), sampling=context.sampling)
