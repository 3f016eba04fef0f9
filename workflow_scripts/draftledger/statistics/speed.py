"""Rows about speed against the baselines, with A/A floors and verdicts, from plain timing rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from draftledger.errors import ConfigError, DraftledgerError
from draftledger.statistics.cells import Cells
from draftledger.statistics.decision import aa_floor, minimum_detectable_effect, relative, speed_verdict
from draftledger.statistics.intervals import Interval
from draftledger.statistics.rows import Row
from draftledger.statistics.scopes import ALL, Scopes, strata_roles
from draftledger.statistics.study import Study
from draftledger.statistics.timing_cube import Cube, Timing

SPEEDUPS = ("speedup_decode", "speedup_end_to_end")


@dataclass(frozen=True, slots=True)
class Speed:
    """Plain timing rows with what is needed to judge them; lossless: arm → every position passed."""

    timing: Timing
    scopes: Scopes
    study: Study
    seeded: frozenset[str]
    lossless: Mapping[str, bool]

    def rows(self) -> Iterator[Row]:
        """Yield every row that compares an arm's speed with a baseline's."""
        baselines = self.study.decision.baselines
        absent = sorted(set(baselines) - set(self.timing.arms))
        if absent:
            raise ConfigError(f"summary: baselines {absent} were not timed; add them to the timed arms")
        for arm in self.timing.arms:
            for metric in SPEEDUPS:
                yield from self._speedups(metric, arm)
            for baseline in baselines:
                if baseline != arm:
                    total = self._total_rate(arm) / self._total_rate(baseline)
                    base = self._base("speedup_decode_total", arm, baseline)
                    yield replace(base, estimate=total)

    def _speedups(self, metric: str, arm: str) -> Iterator[Row]:
        for scope, mask in self.scopes.masks(self.timing.layout.prompts).items():
            if scope != ALL and metric != "speedup_decode":
                continue
            floor = self._floor(metric, mask)
            cells = {
                baseline: self._log_ratios(metric, arm, baseline).take(mask)
                for baseline in self.study.decision.baselines
                if baseline != arm
            }
            claims = {baseline: self.study.student(each) for baseline, each in cells.items()}
            verdict = self._verdict(arm, claims, floor) if scope == ALL else None
            for baseline, claim in claims.items():
                base = self._base(metric, arm, baseline, scope=scope, mask=mask)
                power = self.study.decision.power
                yield replace(
                    base.with_interval(claim.exponentiated()),
                    floor=_relative(floor),
                    mde=_relative(minimum_detectable_effect(claim, power=power, floor=floor or 0.0)),
                    verdict=verdict,
                )
                if scope == ALL:
                    twin = replace(base, metric=f"{metric}_bootstrap")
                    yield twin.with_interval(self.study.bootstrap(cells[baseline]).exponentiated())

    def _log_ratios(self, metric: str, arm: str, baseline: str) -> Cells:
        ratio = self._log_rate(metric, arm) - self._log_rate(metric, baseline)
        return self.timing.cells(ratio, np.ones_like(ratio), seeded=arm in self.seeded)

    def _log_rate(self, metric: str, arm: str) -> Cube:
        columns = self.timing.arms[arm]
        if metric == "speedup_decode":
            tokens, seconds = columns["new_tokens"] - 1, columns["decode_s"]
        else:
            tokens, seconds = columns["new_tokens"], columns["total_s"]
        if not (np.all(tokens > 0) and np.all(seconds > 0)):
            raise DraftledgerError(
                f"timing of arm {arm}: an answer of one token, or of no time, has no rate; drop that prompt"
            )
        return np.log(tokens) - np.log(seconds)

    def _total_rate(self, arm: str) -> float:
        columns = self.timing.arms[arm]
        return float((columns["new_tokens"] - 1).sum() / columns["decode_s"].sum())

    def _floor(self, metric: str, mask: NDArray[np.bool_]) -> float | None:
        """The largest A/A floor over the twins for these prompts, a log ratio; None without enough to tell."""
        decision = self.study.decision
        if len(self.timing.layout.files) < decision.minimum_sessions:
            return None
        floors = [
            aa_floor(
                (self._log_rate(metric, twin) - self._log_rate(metric, original)).mean(axis=2)[:, mask],
                quantile=decision.floor_quantile,
                resamples=self.study.resamples,
                key=decision.bootstrap_key,
            )
            for twin, original in self.study.twins().items()
            if twin in self.timing.arms and original in self.timing.arms
        ]
        return max(floors, default=None)

    def _verdict(self, arm: str, claims: Mapping[str, Interval], floor: float | None) -> str | None:
        if arm in self.study.decision.baselines or arm in self.study.twins():
            return None
        if arm not in self.lossless:
            raise DraftledgerError(f"summary: arm {arm} was timed but its exactness was not checked; decode it")
        return speed_verdict(
            list(claims.values()),
            floor=floor,
            sessions=len(self.timing.layout.files),
            lossless=self.lossless[arm],
            decision=self.study.decision,
        )

    def _base(
        self,
        metric: str,
        arm: str,
        baseline: str,
        *,
        scope: str = ALL,
        mask: NDArray[np.bool_] | None = None,
    ) -> Row:
        layout = self.timing.layout
        checked = (f"positions:{arm}",) if arm in self.lossless and metric in SPEEDUPS else ()
        strata = strata_roles(scope, self.study.decision.baselines[0])
        return self.study.row(
            metric,
            arm,
            unit="ratio",
            roles=("timing", *checked, *strata),
            baseline=baseline,
            scope=scope,
            n_seeds=len(layout.seeds) if arm in self.seeded else 0,
            n_launches=layout.launches if arm in self.seeded else 0,
            n_prompts=len(layout.prompts) if mask is None else int(mask.sum()),
            n_sessions=len(layout.files),
            n_rounds=rounds_timed(self.timing, arm, mask),
        )


def rounds_timed(timing: Timing, arm: str, mask: NDArray[np.bool_] | None = None) -> int:
    """Rounds in an arm's rows on the chosen prompts, a mask [P]; repeats of a round count again."""
    rounds = np.nan_to_num(timing.arms[arm]["rounds"])
    return int((rounds if mask is None else rounds[:, mask]).sum())


def _relative(log_ratio: float | None) -> float | None:
    return None if log_ratio is None else relative(log_ratio)
