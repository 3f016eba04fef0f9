"""Rows about the exactness check, from positions: whether it passed, and what it could have caught."""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from draftledger.errors import DraftledgerError
from draftledger.statistics.answers import ArmRounds, of_arm
from draftledger.statistics.rows import Row
from draftledger.statistics.study import Study


def split_positions(table: pa.Table, arms: Mapping[str, ArmRounds]) -> dict[str, pa.Table]:
    """Group positions by arm; raises DraftledgerError unless every emitted token of every arm was checked."""
    parts = {name: of_arm(table, name) for name in arms}
    for name, part in parts.items():
        if len(part) != arms[name].tokens or part["ok"].null_count or part["runner_up_ulp"].null_count:
            raise DraftledgerError(
                f"positions of arm {name}: {len(part)} checked of {arms[name].tokens} emitted tokens; check again"
            )
    if sum(map(len, parts.values())) != len(table):
        raise DraftledgerError("positions: an arm was checked that has no rounds; decode it")
    return parts


def is_lossless(positions: pa.Table) -> bool:
    """Whether every emitted position passed."""
    return bool(positions["ok"].to_numpy().all())


def exactness_rows(arm: ArmRounds, positions: pa.Table, *, allowed_ulp: float, study: Study) -> Iterator[Row]:
    """Yield the share that passed, the tokens unlike plain decoding's, and the share with a passing runner-up."""
    differs = positions["differs_from_ar"].drop_null()
    runner_up = positions["runner_up_ulp"].to_numpy() <= allowed_ulp
    numbers = {
        "exact_positions": ("share", float(np.mean(positions["ok"].to_numpy()))),
        "runner_up_passes": ("share", float(np.mean(runner_up))),
    }
    if len(differs):
        numbers["differs_from_ar"] = ("tokens", float(np.sum(differs.to_numpy())))
    for metric, (unit, value) in numbers.items():
        yield study.row(
            metric,
            arm.arm,
            unit=unit,
            roles=(f"positions:{arm.arm}",),
            estimate=value,
            n_seeds=len(arm.seeds),
            n_launches=arm.launches,
            n_prompts=len(arm.prompts),
        )
