"""What a drafter is: it proposes tokens after the anchor and hears what was committed."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import mlx.core as mx
import mlx.nn as nn

from draftledger.decoding.sampling import Sampling
from draftledger.errors import ConfigError
from draftledger.models.state import TargetState

# The longest draft of a drafter that has no block of its own; longer ones never pay.
LONGEST = 63


@dataclass(frozen=True, slots=True)
class Proposal:
    """Draft tokens after the anchor: ids [n] int32, maybe not yet evaluated.

    `q` is the distribution [n, C] float32 that each token was drawn from, or null when each is certain (one-hot).
    Its columns are the ids in `candidates` [n, C] int32, or the whole vocabulary when that is null.
    `confidence` is the drafter's own guess [n] that each token will be accepted, or null.
    `forwards` counts the drafter's or target's forward passes spent on it.
    """

    tokens: mx.array
    q: mx.array | None = None
    candidates: mx.array | None = None
    confidence: mx.array | None = None
    forwards: int = 0


def nothing() -> Proposal:
    """Return the empty proposal: the round is then a plain autoregressive step."""
    return Proposal(mx.zeros((0,), dtype=mx.int32))


class Drafter(Protocol):
    """One answer's drafter. `free` leading tokens of a proposal are the target's own, not speculative.

    `block` is the most speculative tokens that it can propose. `silent` drafters never propose, so the next round may
    start before this one is read. In sampled decoding each token must be a draw from the proposal's own `q`.
    """

    free: int
    block: int
    silent: bool

    def propose(self, anchor: mx.array, k: int, *, step: int) -> Proposal:
        """Propose `free` + up to `k` tokens after anchor: [1] int32; `step` keys this round's randomness."""
        ...

    def append_context(self, ids: Sequence[int], taps: mx.array | None = None) -> None:
        """Hear the committed tokens and, where asked for, the target's hidden states [n, taps, D]."""
        ...


@dataclass(frozen=True, slots=True)
class DraftContext:
    """What a drafter may be built from: the settings of its arm, its adapter, and this answer's state.

    `noise` and `sampling` are those of this answer; `answer` is what the autoregressive arm said to the prompt.
    """

    arm: dict[str, Any]
    state: TargetState
    prompt: tuple[int, ...]
    noise: int
    adapter: "Adapter | None" = None
    answer: tuple[int, ...] | None = None
    sampling: Sampling | None = None


@dataclass(frozen=True, slots=True)
class Adapter:
    """A drafter's trained module, built once so that no answer pays for it, and the settings it was trained under.

    For a block LoRA the module is the target's twin with the LoRA in place. `taps` are the target's layers whose
    outputs the drafter hears.
    """

    module: nn.Module
    spec: dict[str, Any]
    taps: tuple[int, ...] = ()


def build(context: DraftContext) -> Drafter:
    """Build the drafter of an arm's kind from the module of that name."""
    return drafter_kind(context.arm["kind"]).build(context)


def drafter_kind(kind: str) -> Any:
    """Return the module of a kind of drafter: `build`, and for trained kinds `load` and `untrained`.

    It is imported by name, so that only arms of this kind are decoded again when its module is edited.
    """
    try:
        return import_module(f"draftledger.drafters.{kind}")
    except ModuleNotFoundError:
        raise ConfigError(f"arms: unknown kind {kind}; see config/README.md for the kinds there are") from None
