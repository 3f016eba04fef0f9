"""Rules and verdicts: what each word needs, in which order, and that the shipped file says so."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml
from scipy import stats

from draftledger.errors import ConfigError
from draftledger.statistics import decision as rules
from draftledger.statistics.decision import Decision, load_decision
from draftledger.statistics.intervals import Interval, student_interval
from draftledger.statistics.predictions import judge

SHIPPED = Path(__file__).parents[2] / "config" / "decision.yaml"


def claim(estimate: float, error: float, df: float = 20.0) -> Interval:
    reach = float(stats.t.ppf(0.975, df)) * error
    return Interval(estimate, estimate - reach, estimate + reach, 0.95, "prompts", df, error)


@pytest.fixture(scope="module")
def decision() -> Decision:
    return load_decision(SHIPPED)


def speed(decision: Decision, *claims: Interval, **changes: object) -> str:
    settings = {"floor": 0.01, "sessions": 2, "lossless": True} | changes
    return rules.speed_verdict(claims, decision=decision, **settings)


def test_the_shipped_rules_load_with_the_digest_of_their_bytes(decision: Decision) -> None:
    assert decision.sha256 == hashlib.sha256(SHIPPED.read_bytes()).hexdigest()
    assert decision.baselines == ("ar", "mlx_lm_ar")
    assert decision.smallest_effect["speed"] == 0.05
    assert load_decision(SHIPPED, dtype="bfloat16").allowed_ulp == 2 * 2**16 > decision.allowed_ulp


FAST, SLOW, LEVEL, VAGUE = claim(0.3, 0.01), claim(-0.3, 0.01), claim(0.0, 0.005), claim(0.1, 0.2)


def test_each_speed_verdict(decision: Decision) -> None:
    assert speed(decision, FAST, FAST) == "faster"
    assert speed(decision, SLOW, SLOW) == "slower"
    assert speed(decision, FAST, SLOW) == "faster than one baseline, slower than the other"
    assert speed(decision, LEVEL, LEVEL) == "no difference beyond the floor"
    assert speed(decision, FAST, LEVEL) == "no difference beyond the floor"
    assert speed(decision, FAST, VAGUE).startswith("undecidable at this size (MDE ")
    assert speed(decision, FAST, FAST, floor=None) == "no floor"
    assert speed(decision, FAST, FAST, lossless=False) == "not lossless"


def test_the_first_rule_that_applies_wins(decision: Decision) -> None:
    assert speed(decision, VAGUE, VAGUE, sessions=1, lossless=False) == "no floor"
    assert speed(decision, VAGUE, VAGUE, lossless=False) == "not lossless"


def test_an_interval_must_clear_the_floor_and_not_only_one(decision: Decision) -> None:
    close = claim(0.03, 0.01)
    assert speed(decision, close, close, floor=0.005) == "faster"
    assert speed(decision, close, close, floor=0.012) == "no difference beyond the floor"


def test_no_interval_is_undecidable(decision: Decision) -> None:
    none = student_interval(np.ones((1, 1)), seeded=False, confidence=0.95)
    assert speed(decision, none, FAST) == "undecidable at this size (MDE unbounded)"
    assert rules.acceptance_verdict(none, decision) == "undecidable at this size (MDE unbounded)"


def test_the_stated_effect_is_the_largest_of_the_unclear_ones(decision: Decision) -> None:
    effect = rules.minimum_detectable_effect(VAGUE, power=decision.power, floor=0.01)
    assert speed(decision, LEVEL, VAGUE) == speed(decision, claim(0.1, 0.1), VAGUE)
    assert speed(decision, claim(0.1, 0.1), VAGUE) == f"undecidable at this size (MDE {100 * np.expm1(effect):.3g} %)"


@pytest.mark.parametrize(
    ("interval", "word"),
    [
        (claim(0.4, 0.1), "accepts more"),
        (claim(-0.4, 0.1), "accepts less"),
        (claim(0.0, 0.01), "no difference"),
        (claim(0.0, 0.1), "undecidable at this size (MDE 0.295 tokens per round)"),
    ],
)
def test_each_acceptance_verdict(decision: Decision, interval: Interval, word: str) -> None:
    assert rules.acceptance_verdict(interval, decision) == word


def test_the_minimum_detectable_effect_is_found_with_the_stated_power() -> None:
    prompts, sd, floor = 10, 0.2, 0.05
    pilot = Interval(0.0, 0.0, 0.0, 0.95, "prompts", prompts - 1, sd / prompts**0.5)
    effect = rules.minimum_detectable_effect(pilot, power=0.8, floor=floor)
    values = effect + sd * np.random.Generator(np.random.Philox(key=2)).normal(size=(20000, prompts))
    low = values.mean(1) - stats.t.ppf(0.975, prompts - 1) * values.std(1, ddof=1) / prompts**0.5
    assert np.mean(low > floor) == pytest.approx(0.8, abs=0.025)


def test_the_floor_grows_with_the_twins_noise_and_shrinks_with_the_size_of_the_claim() -> None:
    twin = np.random.Generator(np.random.Philox(key=6)).normal(scale=0.02, size=(12, 40))
    settings = {"quantile": 0.975, "resamples": 2000, "key": 1}
    small, whole = rules.aa_floor(twin[:2, :4], **settings), rules.aa_floor(twin, **settings)
    assert 0 < whole < small
    assert rules.aa_floor(3 * twin, **settings) == pytest.approx(3 * whole)
    assert rules.aa_floor(np.full((3, 4), -0.02), **settings) == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("power", 1.5),
        ("power", "high"),
        ("baselines", []),
        ("minimum_sessions", 0),
        ("bootstrap_key", -1),
        ("smallest_effect", {"speed": 0.05}),
        ("allowed_ulp", {"float64": 8}),
        ("schema", "other"),
        ("unheard_of", 1),
        ("loop", None),
    ],
)
def test_a_bad_rule_is_refused(tmp_path: Path, key: str, value: object) -> None:
    path = tmp_path / "decision.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(SHIPPED.read_text()) | {key: value}))
    with pytest.raises(ConfigError, match=r"decision\.yaml"):
        load_decision(path)


def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    for text in ("- 1\n", "", "a: [\n"):
        (tmp_path / "decision.yaml").write_text(text)
        with pytest.raises(ConfigError, match="not a set of decision rules"):
            load_decision(tmp_path / "decision.yaml")


def test_predictions_can_hold_fail_and_go_untested(decision: Decision) -> None:
    row = {"metric": "acceptance_rate", "arm": "oracle", "baseline": None, "scope": "all", "estimate": 0.5}
    summary = pa.Table.from_pylist([row])
    bounds = ({"above": 0.4}, {"below": 0.4}, {"above": 0.4, "below": 0.6}, {"above": 0.4, "scope": "looped"})
    wanted = tuple({"metric": "acceptance_rate", "arm": "oracle"} | bound for bound in bounds)
    assert judge(replace(decision, predictions=wanted), summary) == [True, False, True, None]
    assert judge(decision, summary) == [None, None, False, None]
    with pytest.raises(ConfigError, match="prediction"):
        judge(replace(decision, predictions=({"metric": "acceptance_rate", "arm": "oracle"},)), summary)
