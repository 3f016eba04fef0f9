"""The summary of a synthetic study: glossary, figures by hand, verdicts, and rows that must be refused."""

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from synthetic_rows import ARMS, Row, Study, study, table

from draftledger.errors import DraftledgerError
from draftledger.statistics.decision import Decision, load_decision
from draftledger.statistics.rows import SCHEMA
from draftledger.statistics.summary import build_summary

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def decision() -> Decision:
    return load_decision(ROOT / "config" / "decision.yaml")


@pytest.fixture(scope="module")
def whole() -> Study:
    return study()


@pytest.fixture(scope="module")
def summary(whole: Study, decision: Decision) -> pa.Table:
    return build(whole, decision)


def build(tables: Study, decision: Decision, **changes: object) -> pa.Table:
    inputs = {f"{kind}:{arm}": [f"{kind}-{arm}"] for kind in ("rounds", "positions") for arm in ARMS}
    settings = {"arms": ARMS, "decision": decision, "bootstrap": 400, "confidence": 0.95}
    return build_summary(**tables, **(settings | {"inputs": inputs | {"timing": ["timing-0", "timing-1"]}} | changes))


def pick(summary: pa.Table, metric: str, arm: str, **where: object) -> Row:
    wanted = {"metric": metric, "arm": arm, "scope": "all"} | where
    found = [row for row in summary.to_pylist() if all(row[key] == value for key, value in wanted.items())]
    assert len(found) == 1
    return found[0]


def glossary() -> dict[str, tuple[str, bool]]:
    """Metric → unit and whether it is also reported by scope, from the last table of the glossary."""
    text = (ROOT / "docs" / "metrics.md").read_text().partition("## Metrics")[2]
    rows = re.findall(r"^\| `(\w+)`( \*)? \| [^|]+ \| ([^|]+) \| [^|]+ \| [^|]+ \|$", text, re.MULTILINE)
    return {metric: (unit, bool(star)) for metric, star, unit in rows}


def test_the_glossary_and_the_summary_name_the_same_metrics_units_and_scopes(summary: pa.Table) -> None:
    rows = summary.to_pylist()
    found = {
        row["metric"]: (row["unit"], any(r["scope"] != "all" for r in rows if r["metric"] == row["metric"]))
        for row in rows
    }
    assert found == glossary()
    assert summary.schema == SCHEMA


def test_the_glossary_holds_every_verdict() -> None:
    from draftledger.statistics import decision as rules

    text = (ROOT / "docs" / "metrics.md").read_text()
    words = ("NO_FLOOR", "NOT_LOSSLESS", "FASTER", "SLOWER", "BASELINES_DISAGREE", "NO_DIFFERENCE")
    for word in (*words, "ACCEPTS_MORE", "ACCEPTS_LESS", "ACCEPTS_ALIKE"):
        assert f"`{getattr(rules, word)}`" in text
    assert f"`{rules.UNDECIDABLE} (MDE x %)`" in text


def test_arms_have_the_metrics_that_they_can_have(summary: pa.Table) -> None:
    metrics: dict[str, set[str]] = {}
    for row in summary.to_pylist():
        metrics.setdefault(row["arm"], set()).add(row["metric"])
    assert {"acceptance_rate", "drafting_share", "draft_ms", "differs_from_ar"}.isdisjoint(metrics["ar"])
    assert {"tokens_per_round", "loop_fraction", "exact_positions", "verify_ms"} <= metrics["ar"]
    assert {"acceptance_rate", "survival_joint"}.isdisjoint(metrics["idle"])
    assert {"drafting_share", "accepted_per_round"} <= metrics["idle"]
    assert "speedup_decode" not in metrics["untrained"]
    assert "tokens_per_round" not in metrics["mlx_lm_ar"]


def test_scopes_populations_and_counts(summary: pa.Table) -> None:
    scopes = {row["scope"] for row in summary.to_pylist()}
    assert scopes == {"all", "category:code", "category:maths", "category:prose", "looped", "no-loops"}
    looped = pick(summary, "speedup_decode", "dflash", baseline="ar", scope="looped")
    assert (looped["n_prompts"], looped["verdict"]) == (3, None)
    assert looped["inputs"] == ["positions-dflash", "rounds-ar", "timing-0", "timing-1"]
    trained = pick(summary, "speedup_decode", "block_lora", baseline="ar")
    assert [trained[f"n_{level}"] for level in ("seeds", "launches", "prompts", "sessions")] == [3, 3, 12, 6]
    assert trained["population"] == "seeds and prompts"
    plain = pick(summary, "speedup_decode", "lookup", baseline="ar")
    assert (plain["n_seeds"], plain["n_sessions"], plain["population"]) == (0, 6, "prompts")
    assert pick(summary, "peak_memory_gib", "ar")["population"] == "none"


def test_figures_by_hand(summary: pa.Table, whole: Study) -> None:
    rounds = [r for r in whole["rounds"].to_pylist() if r["arm"] == "block_lora"]
    decoding = [r for r in rounds if r["round"] >= 0]
    accepted, offered = (sum(r[name] for r in decoding) for name in ("accepted", "offered"))
    assert pick(summary, "acceptance_rate", "block_lora")["estimate"] == pytest.approx(accepted / offered)
    assert pick(summary, "accepted_per_round", "block_lora")["estimate"] == pytest.approx(accepted / len(decoding))
    emitted = sum(len(r["committed"]) for r in decoding)
    assert pick(summary, "tokens_per_round", "block_lora")["estimate"] == pytest.approx(emitted / len(decoding))
    forwards = 36 + 2 * len(decoding)
    assert pick(summary, "tokens_per_forward", "block_lora")["estimate"] == pytest.approx(36 * 40 / forwards)
    joint = sum(r["accepted"] >= 2 for r in decoding) / len(decoding)
    assert pick(summary, "survival_joint", "block_lora", slot=2)["estimate"] == pytest.approx(joint)
    assert pick(summary, "loop_fraction", "ar")["estimate"] == pytest.approx(3 * 29 / (12 * 40))
    assert pick(summary, "drafting_share", "idle")["estimate"] == 0
    assert pick(summary, "exact_positions", "dflash")["estimate"] == 1
    assert pick(summary, "differs_from_ar", "dflash")["estimate"] == 36
    assert pick(summary, "runner_up_passes", "ar")["estimate"] == 0.2
    assert pick(summary, "draft_ms", "dflash")["estimate"] == pytest.approx(10)
    assert pick(summary, "time_to_first_token_ms", "ar")["estimate"] == pytest.approx(125)
    assert pick(summary, "decode_tokens_per_second", "ar")["n_rounds"] == 6 * 12 * 2 * 20


def test_speedup_is_the_geometric_mean_of_paired_ratios(summary: pa.Table, whole: Study) -> None:
    rows = [r for r in whole["timing"].to_pylist() if r["mode"] == "plain"]
    seconds = {(r["arm"], r["seed"], r["session"], r["prompt"], r["repeat"]): r["decode_s"] for r in rows}
    logs = [np.log(seconds["ar", *key[1:]] / value) for key, value in seconds.items() if key[0] == "dflash"]
    row = pick(summary, "speedup_decode", "dflash", baseline="ar")
    assert row["estimate"] == pytest.approx(np.exp(np.mean(logs)))
    assert row["low"] < row["estimate"] < row["high"] < 1
    boot = pick(summary, "speedup_decode_bootstrap", "dflash", baseline="ar")
    assert boot["estimate"] == pytest.approx(row["estimate"])
    sums = [sum(s for key, s in seconds.items() if key[0] == arm) for arm in ("ar", "dflash")]
    total = pick(summary, "speedup_decode_total", "dflash", baseline="ar")
    assert total["estimate"] == pytest.approx(sums[0] / sums[1])
    assert total["low"] is None


def test_verdicts(summary: pa.Table) -> None:
    words = {arm: pick(summary, "speedup_decode", arm, baseline="ar")["verdict"] for arm in ("block_lora", "dflash")}
    assert words == {"block_lora": "faster", "dflash": "slower"}
    assert pick(summary, "speedup_decode", "idle", baseline="mlx_lm_ar")["verdict"] == "no difference beyond the floor"
    assert pick(summary, "speedup_decode", "mlx_lm_ar", baseline="ar")["verdict"] is None
    assert 0 < pick(summary, "speedup_decode", "ar_twin", baseline="ar")["floor"] < 0.01
    over = pick(summary, "acceptance_over_control", "block_lora", baseline="untrained")
    assert (over["verdict"], over["low"] > 0) == ("accepts more", True)
    assert over["inputs"] == ["rounds-block_lora", "rounds-untrained"]


def test_the_advantage_over_a_control_is_the_mean_difference_of_prompts(summary: pa.Table, whole: Study) -> None:
    found: dict[tuple, list[int]] = {}
    for row in whole["rounds"].to_pylist():
        if row["round"] >= 0:
            found.setdefault((row["arm"], row["seed"], row["prompt"]), []).append(row["accepted"])
    differences = [
        np.mean(accepted) - np.mean(found["untrained", None, prompt])
        for (arm, _, prompt), accepted in found.items()
        if arm == "block_lora"
    ]
    row = pick(summary, "acceptance_over_control", "block_lora", baseline="untrained")
    assert row["estimate"] == pytest.approx(np.mean(differences))


def test_the_floor_is_that_of_the_noisiest_twin(whole: Study, decision: Decision, summary: pa.Table) -> None:
    noisy = build(whole, decision, arms=ARMS | {"idle": ARMS["idle"] | {"twin_of": "block_lora"}})
    assert pick(noisy, "speedup_decode", "dflash", baseline="ar")["floor"] == pytest.approx(0.6, abs=0.05)
    rows = summary.to_pylist()
    floors = [row["floor"] for row in rows if (row["metric"], row["arm"]) == ("speedup_decode", "idle")]
    assert len(set(floors)) == 6
    assert max(floors) < 0.01


def test_a_failed_position_costs_the_verdict_and_one_session_the_floor(whole: Study, decision: Decision) -> None:
    positions = whole["positions"].to_pylist()
    next(row for row in positions if row["arm"] == "block_lora")["ok"] = False
    spoilt = build(whole | {"positions": table(positions)}, decision)
    assert pick(spoilt, "speedup_decode", "block_lora", baseline="ar")["verdict"] == "not lossless"
    assert pick(spoilt, "exact_positions", "block_lora")["estimate"] < 1
    short = build(study(seeds=(0,), sessions=1), decision)
    row = pick(short, "speedup_decode", "block_lora", baseline="ar")
    assert (row["verdict"], row["floor"], row["population"]) == ("no floor", None, "prompts, these adapters")


def test_one_prompt_has_no_interval_and_is_undecidable(decision: Decision) -> None:
    tiny = build(study(prompts=1), decision)
    row = pick(tiny, "speedup_decode", "block_lora", baseline="ar")
    assert (row["low"], row["confidence"], row["population"], row["mde"]) == (None, None, "none", None)
    assert row["verdict"] == "undecidable at this size (MDE unbounded)"
    assert not [row for row in tiny.to_pylist() if row["scope"] in ("looped", "no-loops")]


def test_equal_rows_in_any_order_give_an_equal_table(whole: Study, decision: Decision, summary: pa.Table) -> None:
    generator = np.random.Generator(np.random.Philox(key=3))
    shuffled = {name: rows.take(generator.permutation(len(rows))) for name, rows in whole.items()}
    assert build(shuffled, decision).equals(summary)
    values = [v for name in ("estimate", "low", "high") for v in summary[name].drop_null().to_pylist()]
    assert all(value == float(f"{value:.12g}") for value in values)


def test_a_study_without_seeds_or_timing_still_has_its_numbers(whole: Study, decision: Decision) -> None:
    unseeded = {
        name: table([row | {"seed": None, "launch": None} for row in rows.to_pylist() if row["seed"] in (None, 0)])
        for name, rows in whole.items()
    }
    row = pick(build(unseeded, decision), "speedup_decode", "block_lora", baseline="ar")
    assert (row["population"], row["n_seeds"], row["n_sessions"]) == ("prompts", 0, 2)
    untimed = build(whole | {"timing": whole["timing"].slice(0, 0)}, decision)
    assert "speedup_decode" not in untimed["metric"].to_pylist()


def test_a_second_launch_of_a_seed_is_averaged_within_it(whole: Study, decision: Decision, summary: pa.Table) -> None:
    again = {
        name: [row | {"launch": 1} for row in rows.to_pylist() if row["seed"] == 2] for name, rows in whole.items()
    }
    both = build({name: table(rows.to_pylist() + again[name]) for name, rows in whole.items()}, decision)
    for metric, baseline, sessions in (("speedup_decode", "ar", 8), ("acceptance_over_control", "untrained", 0)):
        once, twice = (pick(each, metric, "block_lora", baseline=baseline) for each in (summary, both))
        assert [twice[name] for name in ("estimate", "low", "high")] == [
            once[name] for name in ("estimate", "low", "high")
        ]
        assert (twice["n_seeds"], twice["n_launches"], twice["n_sessions"]) == (3, 4, sessions)


def test_ends_of_intervals_are_possible_values(summary: pa.Table) -> None:
    assert pick(summary, "loop_fraction", "ar")["low"] == 0
    shares = [row for row in summary.to_pylist() if row["unit"] == "share" and row["low"] is not None]
    assert all(0 <= row["low"] <= row["estimate"] <= row["high"] <= 1 for row in shares)


def drop(name: str, keep: Callable[[Row], bool]) -> Callable[[Study], Study]:
    return lambda tables: tables | {name: table([row for row in tables[name].to_pylist() if keep(row)])}


def change(name: str, edit: Callable[[Row], Row]) -> Callable[[Study], Study]:
    return lambda tables: tables | {name: table([row | edit(row) for row in tables[name].to_pylist()])}


BROKEN = {
    "a round is gone": (drop("rounds", lambda r: (r["arm"], r["round"]) != ("dflash", 3)), "lacks rounds"),
    "a last round is gone": (drop("rounds", lambda r: r["stop"] is None), "stop reason"),
    "a prompt of a seed is gone": (
        drop("rounds", lambda r: (r["arm"], r["seed"], r["prompt"]) != ("dflash", 1, "p03")),
        "has no rounds",
    ),
    "a prompt of an arm is gone": (drop("rounds", lambda r: (r["arm"], r["prompt"]) != ("lookup", "p03")), "other"),
    "an arm is gone": (drop("rounds", lambda r: r["arm"] != "ar"), "fixes the loop strata"),
    "rows twice": (lambda t: t | {"rounds": pa.concat_tables([t["rounds"], t["rounds"].slice(0, 5)])}, "twice"),
    "two categories": (
        change("rounds", lambda r: {"category": "code"} if (r["prompt"], r["round"]) == ("p01", 2) else {}),
        "two categories",
    ),
    "a position is gone": (lambda t: t | {"positions": t["positions"].slice(1)}, "checked of"),
    "a timing cell is gone": (lambda t: t | {"timing": t["timing"].slice(1)}, "missing"),
    "a baseline is gone": (drop("timing", lambda r: r["arm"] != "mlx_lm_ar"), "were not timed"),
    "a session is gone": (drop("timing", lambda r: (r["seed"], r["session"]) != (1, 1)), "sessions per"),
    "a timed seed is gone": (drop("timing", lambda r: r["seed"] != 1), "run the missing seeds"),
    "an undecoded prompt": (
        change("timing", lambda r: {"prompt": "p99"} if r["prompt"] == "p00" else {}),
        "were never decoded",
    ),
    "one token only": (change("timing", lambda r: {"new_tokens": 1 if r["prompt"] == "p00" else 40}), "no rate"),
    "a stage is not timed": (
        change("timing", lambda r: {"verify_s": None} if (r["arm"], r["prompt"]) == ("ar", "p00") else {}),
        "lacks some",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_rows_that_do_not_close_are_refused(whole: Study, decision: Decision, case: str) -> None:
    break_, words = BROKEN[case]
    with pytest.raises(DraftledgerError, match=words):
        build(break_(whole), decision, bootstrap=20)


def test_settings_that_do_not_fit_are_refused(whole: Study, decision: Decision) -> None:
    for changes, words in (
        ({"arms": {name: arm for name, arm in ARMS.items() if name != "idle"}}, "not in the config"),
        ({"arms": ARMS | {"dflash": {"kind": "dflash", "control": "nobody"}}}, "has no rounds"),
        ({"inputs": {}}, "no content digest"),
        ({"decision": replace(decision, baselines=("ar", "other"))}, "were not timed"),
    ):
        with pytest.raises(DraftledgerError, match=words):
            build(whole, **({"decision": decision, "bootstrap": 20} | changes))


def test_two_thousand_resamples_take_little_time(whole: Study, decision: Decision) -> None:
    start = time.process_time()
    build(whole, decision, bootstrap=2000)
    assert time.process_time() - start < 2
