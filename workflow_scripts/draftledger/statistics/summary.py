"""From rows to `summary.parquet`: every reported number, in one deterministic table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from draftledger.errors import ConfigError, DraftledgerError
from draftledger.statistics.acceptance import acceptance_rows, control_rows
from draftledger.statistics.answers import ArmRounds, split_rounds
from draftledger.statistics.costs import cost_rows, stage_rows
from draftledger.statistics.decision import Decision
from draftledger.statistics.exactness import exactness_rows, is_lossless, split_positions
from draftledger.statistics.rows import Row, to_table
from draftledger.statistics.scopes import Scopes, fix_scopes
from draftledger.statistics.speed import Speed
from draftledger.statistics.study import Study
from draftledger.statistics.timing_cube import Timing, read_timing


def build_summary(
    *,
    rounds: pa.Table,
    positions: pa.Table,
    timing: pa.Table,
    arms: Mapping[str, Mapping[str, Any]],
    decision: Decision,
    bootstrap: int,
    confidence: float,
    inputs: Mapping[str, Sequence[str]],
) -> pa.Table:
    """Build the summary of one study; equal rows give an equal table.

    arms: name → {kind, k?, control?, twin_of?}; bootstrap: resamples; inputs: content digests by role
    (`rounds:<arm>`, `positions:<arm>`, `timing`).
    Raises DraftledgerError where rows are missing, doubled or disagree, ConfigError for a bad setting.
    """
    study = Study(arms, decision, bootstrap, confidence, inputs)
    answers = split_rounds(rounds, ngram=decision.loop_ngram)
    plain, staged = read_timing(timing, "plain"), read_timing(timing, "staged")
    _check_arms(study, answers, [each for each in (plain, staged) if each])
    checked = split_positions(positions, answers)
    scopes = fix_scopes(answers[decision.baselines[0]], threshold=decision.loop_threshold)
    rows = list(_decode_rows(answers, study, scopes))
    for name, part in checked.items():
        rows += exactness_rows(answers[name], part, allowed_ulp=decision.allowed_ulp, study=study)
    seeded = _seeded(study, answers)
    if plain:
        lossless = {name: is_lossless(part) for name, part in checked.items()}
        rows += Speed(plain, scopes, study, seeded, lossless).rows()
        rows += cost_rows(plain, study=study, seeded=seeded)
    if staged:
        rows += stage_rows(staged, study=study, seeded=seeded)
    return to_table(rows)


def _decode_rows(answers: Mapping[str, ArmRounds], study: Study, scopes: Scopes) -> Iterator[Row]:
    for arm in answers.values():
        yield from acceptance_rows(arm, study=study, scopes=scopes)
    yield from control_rows(answers, study=study)


def _seeded(study: Study, answers: Mapping[str, ArmRounds]) -> frozenset[str]:
    decoded = {name for name, arm in answers.items() if arm.seeded}
    return frozenset(decoded | {twin for twin, original in study.twins().items() if original in decoded})


def _check_arms(
    study: Study,
    answers: Mapping[str, ArmRounds],
    timings: Sequence[Timing],
) -> None:
    measured = set(answers).union(*(timing.arms for timing in timings))
    if unknown := sorted(measured - set(study.arms)):
        raise ConfigError(f"summary: arms {unknown} have rows but are not in the config; add or delete them")
    if (reference := study.decision.baselines[0]) not in answers:
        raise ConfigError(f"summary: arm {reference} has no rounds, and it fixes the loop strata; decode it")
    for timing in timings:
        for arm in set(timing.arms) & set(answers):
            if answers[arm].seeded and answers[arm].seeds != timing.layout.seeds:
                raise DraftledgerError(
                    f"summary: arm {arm} was decoded with seeds {answers[arm].seeds} and timed with "
                    f"{timing.layout.seeds}; run the missing seeds"
                )
