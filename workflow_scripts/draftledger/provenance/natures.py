"""What may be expected of a rule that runs again with the same recipe."""

from typing import Literal

Nature = Literal["repeatable", "draw", "probe"]

_OTHERS: dict[str, Nature] = {"adapter": "draw", "timing": "draw", "environment": "probe", "ledger": "probe"}


def nature_of(rule: str) -> Nature:
    """Return a rule's nature: repeatable, unless it is a draw (kept, not repeated) or a probe (looks anew)."""
    return _OTHERS.get(rule, "repeatable")
