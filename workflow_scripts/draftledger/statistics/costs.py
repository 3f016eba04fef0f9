"""Rows about an arm's own rates, latencies, stage costs and memory, from timing rows."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from draftledger.errors import DraftledgerError
from draftledger.statistics.rows import Row
from draftledger.statistics.speed import rounds_timed
from draftledger.statistics.study import Study
from draftledger.statistics.timing_cube import Cube, Timing

Columns = Mapping[str, Cube]
Terms = Callable[[Columns], tuple[Cube, Cube]]
PLAIN: Mapping[str, tuple[str, Terms]] = {
    "decode_tokens_per_second": ("tokens/s", lambda c: (c["new_tokens"] - 1, c["decode_s"])),
    "end_to_end_tokens_per_second": ("tokens/s", lambda c: (c["new_tokens"], c["total_s"])),
    "time_to_first_token_ms": ("ms", lambda c: (1000 * c["ttft_s"], np.ones_like(c["ttft_s"]))),
    "prefill_ms": ("ms", lambda c: (1000 * c["prefill_s"], np.ones_like(c["prefill_s"]))),
}
STAGED: Mapping[str, tuple[str, Terms]] = {
    "draft_ms": ("ms per round", lambda c: (1000 * c["draft_s"], c["rounds"])),
    "verify_ms": ("ms per round", lambda c: (1000 * c["verify_s"], c["rounds"])),
    "commit_ms": ("ms per round", lambda c: (1000 * c["commit_s"], c["rounds"])),
}


def cost_rows(timing: Timing, *, study: Study, seeded: frozenset[str]) -> Iterator[Row]:
    """Yield rates and latencies from plain rows, and the highest memory peak of any of them."""
    for arm, columns in timing.arms.items():
        yield from _ratio_rows(PLAIN, timing, arm, study=study, seeded=arm in seeded)
        peak = float(columns["peak_bytes"].max()) / 2**30
        base = _base("peak_memory_gib", "GiB", timing, arm, study=study, seeded=arm in seeded)
        yield replace(base, estimate=peak)


def stage_rows(timing: Timing, *, study: Study, seeded: frozenset[str]) -> Iterator[Row]:
    """Yield milliseconds per round of each stage from staged rows."""
    for arm in timing.arms:
        yield from _ratio_rows(STAGED, timing, arm, study=study, seeded=arm in seeded)


def _ratio_rows(
    metrics: Mapping[str, tuple[str, Terms]], timing: Timing, arm: str, *, study: Study, seeded: bool
) -> Iterator[Row]:
    for metric, (unit, terms) in metrics.items():
        numerator, denominator = terms(timing.arms[arm])
        if np.isnan(numerator).all():
            continue
        if np.isnan(numerator).any() or not np.all(denominator > 0):
            raise DraftledgerError(f"timing of arm {arm}: {metric} lacks some of its rows; time it again")
        cells = timing.cells(numerator, denominator, seeded=seeded)
        base = _base(metric, unit, timing, arm, study=study, seeded=seeded)
        yield base.with_interval(study.student(cells).clipped())


def _base(metric: str, unit: str, timing: Timing, arm: str, *, study: Study, seeded: bool) -> Row:
    return study.row(
        metric,
        arm,
        unit=unit,
        roles=("timing",),
        n_seeds=len(timing.layout.seeds) if seeded else 0,
        n_launches=timing.layout.launches if seeded else 0,
        n_prompts=len(timing.layout.prompts),
        n_sessions=len(timing.layout.files),
        n_rounds=rounds_timed(timing, arm),
    )
