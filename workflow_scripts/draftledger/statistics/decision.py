"""The frozen decision rules, and the verdicts that they give."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy import stats

from draftledger.errors import ConfigError
from draftledger.statistics.intervals import Interval, Matrix, crossed_sums

SCHEMA = "draftledger.decision/1"
NO_FLOOR = "no floor"
NOT_LOSSLESS = "not lossless"
UNDECIDABLE = "undecidable at this size"
FASTER = "faster"
SLOWER = "slower"
BASELINES_DISAGREE = "faster than one baseline, slower than the other"
NO_DIFFERENCE = "no difference beyond the floor"
ACCEPTS_MORE = "accepts more"
ACCEPTS_LESS = "accepts less"
ACCEPTS_ALIKE = "no difference"


@dataclass(frozen=True, slots=True)
class Decision:
    """The content of `config/decision.yaml`, for one dtype; `sha256` is the digest of the file's bytes."""

    baselines: tuple[str, ...]
    minimum_sessions: int
    minimum_seeds: int
    floor_quantile: float
    power: float
    smallest_effect: Mapping[str, float]
    loop_ngram: int
    loop_threshold: float
    allowed_ulp: float
    bootstrap_key: int
    predictions: tuple[Mapping[str, Any], ...]
    sha256: str


def load_decision(path: Path, *, dtype: str = "float32") -> Decision:
    """Read and check the rules for a target in `dtype`; raises ConfigError for a bad or missing entry."""
    data = path.read_bytes()
    try:
        rules = yaml.safe_load(data)
        if rules.pop("schema") != SCHEMA:
            raise ConfigError(f"{path}: schema must be {SCHEMA}; this version reads no other")
        loop = rules.pop("loop")
        decision = Decision(
            baselines=tuple(rules.pop("baselines")),
            predictions=tuple(rules.pop("predictions")),
            loop_ngram=loop["ngram"],
            loop_threshold=loop["threshold"],
            allowed_ulp=rules.pop("allowed_ulp")[dtype],
            sha256=hashlib.sha256(data).hexdigest(),
            **rules,
        )
        _check(decision, path)
    except (yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path}: not a set of decision rules ({error}); compare the shipped config/decision.yaml"
        ) from error
    return decision


def aa_floor(twin: Matrix, *, quantile: float, resamples: int, key: int) -> float:
    """Quantile of |mean log(twin / original)| for log ratios [sessions, prompts], both resampled.

    The matrix must hold the sessions and prompts of the claim, so that the floor has the claim's size.
    """
    means = crossed_sums(twin, resamples=resamples, key=key) / twin.size
    return float(np.quantile(np.abs(means), quantile))


def minimum_detectable_effect(interval: Interval, *, power: float, floor: float = 0.0) -> float | None:
    """The true effect whose interval clears `floor` with probability `power`; None without an interval."""
    if interval.standard_error is None or interval.df is None:
        return None
    reach = stats.t.ppf(0.5 + interval.confidence / 2, interval.df) + stats.t.ppf(power, interval.df)
    return floor + float(reach) * interval.standard_error


def speed_verdict(
    claims: Sequence[Interval], *, floor: float | None, sessions: int, lossless: bool, decision: Decision
) -> str:
    """The first rule that applies to log-ratio intervals, one for each baseline; floor is a log ratio."""
    if floor is None or sessions < decision.minimum_sessions:
        return NO_FLOOR
    if not lossless:
        return NOT_LOSSLESS
    sides = [_side(claim, floor) for claim in claims]
    unclear = [
        minimum_detectable_effect(claim, power=decision.power, floor=floor)
        for claim, side in zip(claims, sides, strict=True)
        if not side
    ]
    effects = [math.inf if effect is None else relative(effect) for effect in unclear]
    if effects and max(effects) > decision.smallest_effect["speed"]:
        return f"{UNDECIDABLE} (MDE {_amount(100 * max(effects), ' %')})"
    named = {(1,): FASTER, (-1,): SLOWER, (-1, 1): BASELINES_DISAGREE}
    return named.get(tuple(sorted(set(sides))), NO_DIFFERENCE)


def acceptance_verdict(claim: Interval, decision: Decision) -> str:
    """The first rule that applies to a trained-minus-control interval in accepted tokens per round."""
    side = _side(claim, 0.0)
    effect = minimum_detectable_effect(claim, power=decision.power)
    effect = math.inf if effect is None else effect
    if not side and effect > decision.smallest_effect["accepted_per_round"]:
        return f"{UNDECIDABLE} (MDE {_amount(effect, ' tokens per round')})"
    return {1: ACCEPTS_MORE, -1: ACCEPTS_LESS, 0: ACCEPTS_ALIKE}[side]


def relative(log_ratio: float) -> float:
    """A log ratio as a relative effect; stays finite."""
    return math.expm1(min(log_ratio, 700.0))


def _side(claim: Interval, floor: float) -> int:
    """1 or -1 when the whole interval lies beyond the floor on that side, otherwise 0."""
    if claim.low is None or claim.high is None:
        return 0
    return int(claim.low > floor) - int(claim.high < -floor)


def _amount(value: float, unit: str) -> str:
    return f"{value:.3g}{unit}" if math.isfinite(value) else "unbounded"


def _check(decision: Decision, path: Path) -> None:
    shares = (decision.floor_quantile, decision.power, decision.loop_threshold)
    sizes = (decision.minimum_sessions, decision.minimum_seeds, decision.loop_ngram)
    effects = (decision.smallest_effect["speed"], decision.smallest_effect["accepted_per_round"])
    if not all(0 < share < 1 for share in shares):
        raise ConfigError(f"{path}: floor_quantile, power and loop.threshold must lie between 0 and 1")
    if not all(isinstance(size, int) and size >= 1 for size in sizes):
        raise ConfigError(f"{path}: minimum_sessions, minimum_seeds and loop.ngram must be whole and positive")
    if not all(effect > 0 for effect in (*effects, decision.allowed_ulp)):
        raise ConfigError(f"{path}: smallest_effect and allowed_ulp must be positive")
    if not isinstance(decision.bootstrap_key, int) or not 0 <= decision.bootstrap_key < 2**64:
        raise ConfigError(f"{path}: bootstrap_key must be a whole number of at most 64 bits")
    if not decision.baselines or len(set(decision.baselines)) != len(decision.baselines):
        raise ConfigError(f"{path}: baselines must name at least one arm, each once")
