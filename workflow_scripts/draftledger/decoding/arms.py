"""An arm on one prompt: which loop runs, with which drafter, adapter and known answer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from draftledger.decoding.clock import Clock
from draftledger.decoding.loop import Limits, Round, decode
from draftledger.decoding.sampling import Sampling, sampling_of
from draftledger.drafters.ar import Silent
from draftledger.drafters.base import Adapter, DraftContext, Drafter, build, drafter_kind
from draftledger.errors import CorruptError
from draftledger.models.state import TargetState, why_not


@dataclass(frozen=True, slots=True)
class Arm:
    """A named configuration that is measured; `settings` are its config entry, `adapter` its trained weights.

    `sampling` is null for greedy decoding; `exact` decides near-ties as autoregressive decoding does.
    """

    name: str
    settings: dict[str, Any]
    adapter: Adapter | None = None
    sampling: Sampling | None = None
    exact: bool = False

    @property
    def noisy(self) -> bool:
        """Tell whether the answer's rounds depend on the noise stream."""
        return self.sampling is not None or "noise_bound" in self.settings

    @property
    def taps(self) -> tuple[int, ...]:
        """Return the target's layers that the drafter hears."""
        return self.adapter.taps if self.adapter else ()

    @property
    def k(self) -> int:
        """Return the cap on speculative tokens a round; 0 is the drafter's whole block."""
        return self.settings.get("k", 0)

    def drafter(
        self, state: TargetState, prompt: Sequence[int], *, noise: int, answer: tuple[int, ...] | None = None
    ) -> Drafter:
        """Build the drafter of one answer; `answer` is what the autoregressive arm said, for the oracle."""
        sampling = self.sampling and self.sampling.of_answer(prompt, noise=noise)
        return build(DraftContext(self.settings, state, tuple(prompt), noise, self.adapter, answer, sampling))


def load_arm(
    name: str,
    settings: dict[str, Any],
    *,
    model: nn.Module,
    adapter: Path | None,
    decoding: Mapping[str, Any] | None = None,
) -> Arm:
    """Load an arm: its adapter file, or for an untrained control a fresh no-op adapter of the same shape.

    `decoding` is the config's decode block, of which `sampling` and `exact` count here.
    """
    drafter, decoding = settings.get("drafter"), decoding or {}
    # mlx-lm's generator breaks ties as it does.
    exact = decoding.get("exact", False) and settings["kind"] != "mlx_lm_ar"
    arm = Arm(name, settings, None, sampling_of(decoding.get("sampling")), exact)
    if drafter is None:
        return arm
    kind = drafter_kind(drafter["kind"])
    if settings.get("untrained"):
        return replace(arm, adapter=kind.untrained(drafter, model=model))
    if adapter is None:
        raise CorruptError(f"arm {name}: its adapter was not given; run the adapter rule")
    return replace(arm, adapter=kind.load(drafter, adapter, model=model))


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
    """Yield the rounds of one answer; `answer` is what the autoregressive arm said, for the oracle.

    A target that cannot be rolled back exactly is decoded token by token, and the prefill's `reason` says so.
    """
    ids, kind = mx.array(prompt, dtype=mx.int32), arm.settings["kind"]
    sampling = arm.sampling and arm.sampling.of_answer(prompt, noise=noise)
    if kind == "mlx_lm_ar":
        # By name, so that an edit of the other loop decodes no other arm again.
        yield from import_module("draftledger.decoding.mlx_lm").generate(model, ids, limits=limits, sampling=sampling)
        return
    reason = None if kind == "ar" else why_not(model)
    state = TargetState(model, taps=() if reason else arm.taps)
    drafter = Silent() if reason else arm.drafter(state, prompt, noise=noise, answer=answer)
    rounds = decode(state, drafter, ids, k=arm.k, limits=limits, clock=clock, sampling=sampling, exact=arm.exact)
    yield replace(next(rounds), reason=reason)
    yield from rounds
