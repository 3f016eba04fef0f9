"""What a drafter is: it proposes tokens after the anchor and hears what was committed."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import mlx.core as mx
import mlx.nn as nn

from draftledger.errors import ConfigError
from draftledger.models.state import TargetState


@dataclass(frozen=True, slots=True)
class Proposal:
    """Draft tokens after the anchor: ids [n] int32, maybe not yet evaluated.

    `q` is the drafter's distribution [n, V] float32, or null when each token is certain (one-hot).
    `confidence` is the drafter's own guess [n] that each token will be accepted, or null.
    `forwards` counts the drafter's or target's forward passes spent on it.
    """

    tokens: mx.array
    q: mx.array | None = None
    confidence: mx.array | None = None
    forwards: int = 0


def nothing() -> Proposal:
    """Return the empty proposal: the round is then a plain autoregressive step."""
    return Proposal(mx.zeros((0,), dtype=mx.int32))


class Drafter(Protocol):
    """One answer's drafter. `free` leading tokens of a proposal are the target's own, not speculative.

    `silent` drafters never propose, so the next round may start before this one is read.
    """

    free: int
    silent: bool

    def propose(self, anchor: mx.array, k: int, *, step: int) -> Proposal:
        """Propose `free` + up to `k` tokens after anchor: [1] int32; `step` keys this round's randomness."""
        ...

    def append_context(self, ids: Sequence[int], taps: mx.array | None = None) -> None:
        """Hear the committed tokens and, where asked for, the target's hidden states [n, taps, D]."""
        ...


@dataclass(frozen=True, slots=True)
class DraftContext:
    """What a drafter may be built from: the settings of its arm, its adapter, and this answer's state."""

    arm: dict[str, Any]
    state: TargetState
    prompt: tuple[int, ...]
    noise: int
    adapter: "Adapter | None" = None
    answer: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Adapter:
    """Trained weights of a drafter by tensor name, with the settings they were trained under.

    `twin` is the target with them in place, built once so that no answer pays for it.
    """

    weights: dict[str, mx.array]
    spec: dict[str, Any]
    path: Path | None = None
    twin: nn.Module | None = None


def build(context: DraftContext) -> Drafter:
    """Build the drafter of an arm's kind from the module of that name."""
    kind = context.arm["kind"]
    try:
        module = import_module(f"draftledger.drafters.{kind}")
    except ModuleNotFoundError:
        raise ConfigError(f"arms: unknown kind {kind}; see config/README.md for the kinds there are") from None
    return module.build(context)
