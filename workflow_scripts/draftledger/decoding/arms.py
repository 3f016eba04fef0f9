"""An arm on one prompt: which loop runs, with which drafter, adapter and known answer."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from draftledger.decoding.clock import Clock
from draftledger.decoding.loop import Limits, Round, decode
from draftledger.drafters.base import Adapter, DraftContext, build, drafter_kind
from draftledger.errors import CorruptError
from draftledger.models.state import TargetState


@dataclass(frozen=True, slots=True)
class Arm:
    """A named configuration that is measured; `settings` are its config entry, `adapter` its trained weights."""

    name: str
    settings: dict[str, Any]
    adapter: Adapter | None = None

    @property
    def noisy(self) -> bool:
        """Tell whether the answer's rounds depend on the noise stream."""
        return "noise_bound" in self.settings


def load_arm(name: str, settings: dict[str, Any], *, model: nn.Module, adapter: Path | None) -> Arm:
    """Load an arm: its adapter file, or for an untrained control a fresh no-op adapter of the same shape."""
    drafter = settings.get("drafter")
    if drafter is None:
        return Arm(name, settings)
    kind = drafter_kind(drafter["kind"])
    if settings.get("untrained"):
        return Arm(name, settings, kind.untrained(drafter, model=model))
    if adapter is None:
        raise CorruptError(f"arm {name}: its adapter was not given; run the adapter rule")
    return Arm(name, settings, kind.load(drafter, adapter, model=model))


def run_arm(
    model: nn.Module,
    arm: Arm,
    prompt: list[int],
    *,
    limits: Limits,
    noise: int,
    answer: tuple[int, ...] | None = None,
    clock: Clock | None = None,
) -> Iterator[Round]:
    """Yield the rounds of one answer; `answer` is what the autoregressive arm said, for the oracle."""
    ids = mx.array(prompt, dtype=mx.int32)
    if arm.settings["kind"] == "mlx_lm_ar":
        # By name, so that an edit of the other loop decodes no other arm again.
        yield from import_module("draftledger.decoding.mlx_lm").generate(model, ids, limits=limits)
        return
    state = TargetState(model, taps=arm.adapter.taps if arm.adapter else ())
    context = DraftContext(arm.settings, state, tuple(prompt), noise, arm.adapter, answer)
    yield from decode(state, build(context), ids, k=arm.settings.get("k", 0), limits=limits, clock=clock)
