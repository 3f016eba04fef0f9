"""Rows about drafts and their acceptance, from rounds."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from draftledger.errors import ConfigError
from draftledger.measurement import acceptance_metrics as metrics
from draftledger.statistics.answers import ArmRounds
from draftledger.statistics.cells import Cells
from draftledger.statistics.decision import acceptance_verdict, minimum_detectable_effect
from draftledger.statistics.rows import Row
from draftledger.statistics.scopes import ALL, Scopes, strata_roles
from draftledger.statistics.study import Study


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio metric: its terms, its unit, and where it is reported."""

    terms: Callable[[metrics.Rounds], metrics.Terms]
    unit: str
    drafters_only: bool = True
    by_scope: bool = False
    bootstrap: bool = False


RATIOS: Mapping[str, Ratio] = {
    "acceptance_rate": Ratio(metrics.acceptance_rate, "share", bootstrap=True),
    "accepted_per_round": Ratio(metrics.accepted_per_round, "tokens per round", by_scope=True, bootstrap=True),
    "drafting_share": Ratio(metrics.drafting_share, "share"),
    "tokens_per_round": Ratio(metrics.tokens_per_round, "tokens per round", drafters_only=False),
    "tokens_per_forward": Ratio(metrics.tokens_per_forward, "tokens per forward", drafters_only=False),
}
TOPS = {"share": 1.0, "tokens per round": float("inf"), "tokens per forward": float("inf")}
SURVIVALS = {
    "survival_joint": metrics.survival_joint,
    "survival_conditional": metrics.survival_conditional,
}


def acceptance_rows(arm: ArmRounds, *, study: Study, scopes: Scopes) -> Iterator[Row]:
    """Yield every row that one arm's rounds give by themselves."""
    drafts = "k" in study.arms[arm.arm] or bool(arm.rounds.offered.any())
    for metric, ratio in RATIOS.items():
        if drafts or not ratio.drafters_only:
            yield from _ratio_rows(metric, ratio, arm, study=study, scopes=scopes)
    yield from _survival_rows(arm, study)
    base = _base("loop_fraction", "share", arm, study)
    yield base.with_interval(study.student(arm.cells(arm.loops)).clipped(top=TOPS["share"]))


def control_rows(arms: Mapping[str, ArmRounds], *, study: Study) -> Iterator[Row]:
    """Yield, for each arm with a control, accepted per round minus the untrained control's, and its verdict."""
    for name in arms:
        control = study.arms[name].get("control")
        if control is None:
            continue
        if control not in arms:
            raise ConfigError(f"summary: arm {name} names the control {control}, which has no rounds; decode it")
        difference = _difference(arms[name], arms[control])
        roles = (f"rounds:{name}", f"rounds:{control}")
        base = _base("acceptance_over_control", "tokens per round", arms[name], study, roles=roles)
        base = replace(base, baseline=control)
        interval = study.student(difference)
        yield replace(
            base.with_interval(interval),
            mde=minimum_detectable_effect(interval, power=study.decision.power),
            verdict=acceptance_verdict(interval, study.decision),
        )
        twin = replace(base, metric=f"{base.metric}_bootstrap")
        yield twin.with_interval(study.bootstrap(difference))


def _ratio_rows(metric: str, ratio: Ratio, arm: ArmRounds, *, study: Study, scopes: Scopes) -> Iterator[Row]:
    cells = arm.cells(ratio.terms(arm.rounds))
    for scope, mask in scopes.masks(arm.prompts).items():
        part = cells.take(mask)
        if not part.counted or (scope != ALL and not ratio.by_scope):
            continue
        roles = (f"rounds:{arm.arm}", *strata_roles(scope, study.decision.baselines[0]))
        base = replace(_base(metric, ratio.unit, arm, study, mask=mask, roles=roles), scope=scope)
        yield base.with_interval(study.student(part).clipped(top=TOPS[ratio.unit]))
        if ratio.bootstrap and scope == ALL:
            yield replace(base, metric=f"{metric}_bootstrap").with_interval(study.bootstrap(part))


def _survival_rows(arm: ArmRounds, study: Study) -> Iterator[Row]:
    for metric, terms in SURVIVALS.items():
        for slot in range(1, int(arm.rounds.offered.max()) + 1):
            cells = arm.cells(terms(arm.rounds, slot))
            if cells.counted:
                base = replace(_base(metric, "share", arm, study), slot=slot)
                yield base.with_interval(study.student(cells).clipped(top=TOPS["share"]))


def _difference(arm: ArmRounds, control: ArmRounds) -> Cells:
    if control.seeded and control.seeds != arm.seeds:
        raise ConfigError(f"summary: {arm.arm} and its control {control.arm} have other seeds; run the same")
    trained, untrained = (each.cells(metrics.accepted_per_round(each.rounds)) for each in (arm, control))
    values = trained.numerator / trained.denominator - untrained.numerator / untrained.denominator
    return Cells.of_values(values, seeded=arm.seeded)


def _base(
    metric: str,
    unit: str,
    arm: ArmRounds,
    study: Study,
    *,
    mask: NDArray[np.bool_] | None = None,
    roles: tuple[str, ...] | None = None,
) -> Row:
    mask = np.ones(len(arm.prompts), bool) if mask is None else mask
    return study.row(
        metric,
        arm.arm,
        unit=unit,
        roles=roles or (f"rounds:{arm.arm}",),
        n_seeds=len(arm.seeds),
        n_launches=arm.launches,
        n_prompts=int(mask.sum()),
        n_rounds=arm.decoding_rounds(mask),
    )
