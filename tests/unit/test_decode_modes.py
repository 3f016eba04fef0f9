"""Decode and timing jobs of sampled and of exact configurations, and the control that decodes an answer twice."""

from dataclasses import replace

import mlx.core as mx
import mlx.nn as nn
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_measurement import ARMS, DECODE, Bench

from draftledger.decoding.arms import run_arm
from draftledger.decoding.exact import TOLERANCE
from draftledger.decoding.loop import Limits, Round, decode
from draftledger.decoding.sampling import Sampling
from draftledger.drafters.ar import Silent
from draftledger.drafters.oracle import Oracle
from draftledger.errors import ConfigError, CorruptError
from draftledger.measurement.exactness import ExactnessError
from draftledger.measurement.rows import answers
from draftledger.models.state import TargetState
from draftledger.provenance.tables import counts_of
from targets import VOCABULARY, dense, greedy, hybrid, prompt

SAMPLING = {"temperature": 0.9, "top_p": 0.95, "seed": 3}
COUNT = 30


def bench(folder, monkeypatch, **decode) -> Bench:
    monkeypatch.setattr("test_measurement.DECODE", {**DECODE, "allowed_ulp": 8.0, **decode})
    return Bench(folder)


def test_sampled_jobs_close_and_timing_draws_the_recorded_tokens(tmp_path, monkeypatch):
    made = bench(tmp_path, monkeypatch, sampling=SAMPLING)
    told = {arm: made.decode(arm) for arm in ARMS}
    for rounds, positions in told.values():
        found = answers(rounds)
        assert len(found) == 4 * 2  # every arm is decoded under every noise stream
        assert len(set(found.values())) == len(found)
        assert set(positions["ok"].to_pylist()) == {True}
        assert set(positions["differs_from_ar"].to_pylist()) == {None}
        for row in rounds.to_pylist():
            kept = row["free_accepted"] + row["accepted"]
            assert len(row["uniform"]) == len(row["p"]) == len(row["q"]) == min(kept + 1, len(row["draft"])) + 1
            assert all(0 <= value < 1 for value in row["uniform"])
            assert row["reason"] is None
        counts = counts_of(positions)
        assert counts["adversary_forced"] == counts["adversary_caught"] + counts["adversary_ties"]
    assert answers(told["oracle"][0]) != answers(told["ar"][0])
    session = made.time()
    assert session.num_rows == len(ARMS) * (2 * 4 + 1)
    assert {(row["arm"], row["noise"]) for row in session.to_pylist()} == {(arm, n) for arm in ARMS for n in (1, 2)}
    role = "decode/lookup/shared/rounds.parquet"
    other = bench(tmp_path / "other", monkeypatch, sampling={**SAMPLING, "seed": 4})
    for arm in ("ar", "lookup"):
        other.decode(arm)
    assert answers(pq.read_table(other.inputs[role])) != answers(told["lookup"][0])
    other.inputs[role] = made.inputs[role]
    with pytest.raises(CorruptError, match="other tokens than decode"):
        other.time("ar", "lookup")


def test_greedy_rows_hold_no_decisions(tmp_path, monkeypatch):
    rounds, _ = bench(tmp_path, monkeypatch).decode("lookup", prompts=1)
    assert {rounds[name].null_count for name in ("uniform", "p", "q", "reason")} == {rounds.num_rows}


def test_an_arm_that_does_not_repeat_is_refused(tmp_path, monkeypatch):
    calls = []

    def unsteady(*args, **settings):
        calls.append(None)
        for result in run_arm(*args, **settings):
            yield replace(result, accepted=result.accepted + (len(calls) > 1 and result.index == 1))

    monkeypatch.setattr("draftledger.measurement.decoding.run_arm", unsteady)
    with pytest.raises(ExactnessError, match=r"arm ar, prompt p0, round 1: decoded again"):
        bench(tmp_path, monkeypatch).decode("ar", prompts=1)


# --- exact mode -------------------------------------------------------------------------------------------------------


class Wobbly(nn.Module):
    """A target whose ids come in pairs of almost equal logits, and whose logits depend a little on a block's width."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.inner, self.layers = model, model.layers

    def make_cache(self):
        from mlx_lm.models.cache import make_prompt_cache

        return make_prompt_cache(self.inner)

    def __call__(self, ids: mx.array, cache=None) -> mx.array:
        logits = self.inner(ids, cache=cache)
        best = logits.max(axis=-1, keepdims=True)
        paired = mx.maximum(logits, mx.roll(logits, 1, axis=-1))
        wobble = mx.random.normal(paired.shape, key=mx.random.key(ids.shape[1]))
        return paired + mx.where(ids.shape[1] > 1, 0.1, 1e-4) * TOLERANCE * mx.abs(best) * mx.clip(wobble, -2, 2)


def spoken(rounds: list[Round]) -> list[int]:
    return [token for result in rounds for token in result.committed]


@pytest.mark.parametrize("target", [dense, hybrid])
def test_exact_answers_are_plain_decodings_where_near_ties_turn_with_width(target):
    model, ids, limits = Wobbly(target()), prompt(12, key=1), Limits(COUNT, frozenset())
    expected = greedy(model, ids, COUNT)
    differs = []
    for corruption in (0.0, 0.3, 1.0):
        told = {}
        for exact in (False, True):
            drafter = Oracle(expected, corruption=corruption, vocabulary=VOCABULARY, noise=2)
            told[exact] = spoken(list(decode(TargetState(model), drafter, ids, k=4, limits=limits, exact=exact)))
        assert told[True] == expected
        differs.append(told[False] != expected)
    assert any(differs)


def test_exact_decoding_costs_nothing_without_near_ties():
    model, ids = dense(), prompt(12, key=1)
    answer, widths = greedy(model, ids, COUNT), []

    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = model.layers

        def __call__(self, ids: mx.array, cache=None) -> mx.array:
            widths.append(ids.shape[1])
            return model(ids, cache=cache)

    rounds = list(
        decode(TargetState(Counted()), Oracle(answer), ids, k=4, limits=Limits(COUNT, frozenset()), exact=True)
    )
    assert spoken(rounds) == answer
    assert len(widths) == 2 + len(rounds) - 1  # the prefill in two parts, then one forward a round


def test_exact_jobs_must_give_the_baselines_answers(tmp_path, monkeypatch):
    made = bench(tmp_path, monkeypatch, exact=True)
    ar = answers(made.decode("ar")[0])
    assert answers(made.decode("lookup")[0]) == ar
    rounds = pq.read_table(made.inputs["decode/ar/shared/rounds.parquet"])
    other = [
        {**row, "committed": [(token + 1) % VOCABULARY for token in row["committed"]]} for row in rounds.to_pylist()
    ]
    made.keep("decode/ar/shared/rounds.parquet", pa.Table.from_pylist(other, schema=rounds.schema))
    with pytest.raises(ExactnessError, match=r"arm lookup, prompt p0, position 0: not the token of arm `ar`"):
        made.decode("lookup")


def test_exact_is_refused_where_it_makes_no_sense(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="one right answer"):
        next(
            decode(
                TargetState(dense()),
                Silent(),
                prompt(),
                k=0,
                limits=Limits(3, frozenset()),
                sampling=Sampling(1.0),
                exact=True,
            )
        )
    made = bench(tmp_path, monkeypatch, exact=True)
    made.target = replace(made.target, dtype="bfloat16")
    with pytest.raises(ConfigError, match="needs float32"):
        made.decode("ar")
