"""The check of sampled answers: honest ones pass, and one false token, probability or uniform is seen."""

from dataclasses import replace
from functools import cache

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftledger.decoding.acceptance import Decisions, verdict
from draftledger.decoding.loop import Limits, Round, decode
from draftledger.decoding.sampling import Sampling
from draftledger.drafters.ar import Silent
from draftledger.drafters.block_lora import BlockLora
from draftledger.drafters.lookup import Lookup
from draftledger.drafters.oracle import Oracle
from draftledger.measurement.exactness import ExactnessError, Redraft, adversary, check_sampled, require_exact
from draftledger.measurement.margins import FAR, sampled_positions
from draftledger.models.state import TargetState
from targets import VOCABULARY, Fixed, dense, greedy, hybrid, prompt
from teachers import noisy_adapter

TARGETS = {"hybrid": hybrid, "dense": dense}
SAMPLINGS = {
    "plain": Sampling(1.0, seed=3),
    "filtered": Sampling(0.7, top_p=0.9, top_k=20, min_p=0.02, seed=4),
}
COUNT, K, ALLOWED = 20, 3, 8.0
IDS = prompt(8, key=2)


@cache
def answer(target: str, drafter: str, name: str) -> tuple[Round, ...]:
    model, sampling = TARGETS[target](), SAMPLINGS[name]
    state = TargetState(model)
    made = {
        "ar": lambda: Silent(),
        "lookup": lambda: Lookup(IDS.tolist(), ngram=1),
        "oracle": lambda: Oracle(greedy(model, IDS, COUNT), corruption=0.3, vocabulary=VOCABULARY),
        "block_lora": lambda: BlockLora(state, noisy_adapter(model), noise=3, bound=VOCABULARY, sampling=sampling),
    }[drafter]()
    return tuple(decode(state, made, IDS, k=K, limits=Limits(COUNT, frozenset()), sampling=sampling))


def again(target: str, name: str) -> Redraft:
    """The block LoRA once more, on the check's own state."""
    adapter = noisy_adapter(TARGETS[target]())
    return Redraft(lambda s: BlockLora(s, adapter, noise=3, bound=VOCABULARY, sampling=SAMPLINGS[name]), (), K)


def check(target: str, rounds, name: str, *, wide: bool = False, redraft: Redraft | None = None):
    found = check_sampled(
        TARGETS[target](),
        IDS.tolist(),
        rounds,
        sampling=SAMPLINGS[name],
        allowed=ALLOWED,
        wide=wide,
        redraft=redraft,
    )
    require_exact(found, allowed=ALLOWED, where="here")
    return found


@pytest.mark.parametrize("name", SAMPLINGS)
@pytest.mark.parametrize(
    ("target", "drafter"), [("hybrid", "block_lora"), *(("dense", d) for d in ("ar", "lookup", "oracle", "block_lora"))]
)
def test_every_arm_passes_at_every_token(target, drafter, name):
    rounds = answer(target, drafter, name)
    drafted = drafter == "block_lora"
    for wide in (False, True):
        found = check(target, rounds, name, wide=wide, redraft=again(target, name) if drafted else None)
        assert [position.token for position in found] == [token for result in rounds for token in result.committed]
        assert {position.margin_ulp for position in found} == {0.0}
    assert np.mean([position.runner_up_ulp > ALLOWED for position in found]) > 0.9
    if drafted:
        alone = [position.runner_up_ulp > ALLOWED for position in check(target, rounds, name)]
        assert 0.3 < np.mean(alone) < 0.9  # without q, corrections go unseen


def lies(rounds: tuple[Round, ...], place: int, shift: int) -> tuple[Round, ...]:
    """One committed token replaced, wherever it stands in its round."""
    for number, result in enumerate(rounds):
        if place < len(result.committed):
            tokens = list(result.committed)
            tokens[place] = (tokens[place] + shift) % VOCABULARY
            return (*rounds[:number], replace(result, committed=tuple(tokens)), *rounds[number + 1 :])
        place -= len(result.committed)
    raise AssertionError(place)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(["ar", "lookup", "oracle"]), st.integers(0, COUNT - 1), st.integers(1, VOCABULARY - 1))
def test_any_replaced_token_is_caught_where_it_stands(drafter, place, shift):
    with pytest.raises(ExactnessError, match=f"here, position {place}:"):
        check("dense", lies(answer("dense", drafter, "plain"), place, shift), "plain")


@pytest.mark.parametrize("field", ["p", "uniform"])
@pytest.mark.parametrize("drafter", ["ar", "oracle", "block_lora"])
def test_a_false_record_is_caught(drafter, field):
    rounds = answer("dense", drafter, "filtered")
    for number, result in enumerate(rounds[:-1]):
        values = list(getattr(result.decisions, field))
        for place, value in enumerate(values):
            false = [*values[:place], value + (1e-3 if value < 0.5 else -1e-3), *values[place + 1 :]]
            lie = replace(result, decisions=replace(result.decisions, **{field: tuple(false)}))
            with pytest.raises(ExactnessError):
                check("dense", (*rounds[:number], lie, *rounds[number + 1 :]), "filtered")


def test_a_draft_token_kept_or_refused_against_its_test_is_caught():
    rounds = answer("dense", "block_lora", "plain")
    tested = [result.decisions for result in rounds]
    kept = next(i for i, made in enumerate(tested) if rounds[i].free_accepted and made.uniform[0] > 1.02 * made.p[0])
    low = tested[kept]
    dear = replace(low, q=(1.01 * low.p[0] / low.uniform[0], *low.q[1:]))
    with pytest.raises(ExactnessError):
        check("dense", (*rounds[:kept], replace(rounds[kept], decisions=dear), *rounds[kept + 1 :]), "plain")
    lost = next(
        i for i, result in enumerate(rounds) if result.free_accepted and not result.accepted and tested[i].p[1] > 1e-3
    )
    high, slot = tested[lost], 1
    cheap = replace(high, q=(*high.q[:slot], 0.99 * high.p[slot] / high.uniform[slot], *high.q[slot + 1 :]))
    with pytest.raises(ExactnessError):
        check("dense", (*rounds[:lost], replace(rounds[lost], decisions=cheap), *rounds[lost + 1 :]), "plain")


def test_a_correction_that_the_drafter_likes_better_than_the_target_is_caught():
    rounds = answer("hybrid", "block_lora", "plain")
    lost = next(i for i, result in enumerate(rounds) if result.draft and result.accepted + 1 < len(result.draft))
    made = rounds[lost].decisions
    lie = replace(rounds[lost], decisions=replace(made, q=(*made.q[:-1], made.p[-1] * 1.01)))
    with pytest.raises(ExactnessError):
        check("hybrid", (*rounds[:lost], lie, *rounds[lost + 1 :]), "plain")


@pytest.mark.parametrize("target", TARGETS)
def test_a_false_correction_is_caught_where_the_check_drafts_again(target, monkeypatch):
    def squared(p, proposal, uniform):
        """Corrects with the right tokens, but by another law."""
        kept, left = verdict(p, proposal, uniform)
        return kept, mx.where(kept < proposal.tokens.size, left * left, left)

    monkeypatch.setattr("draftledger.decoding.acceptance.verdict", squared)
    rounds = answer.__wrapped__(target, "block_lora", "plain")
    check(target, rounds, "plain")
    with pytest.raises(ExactnessError):
        check(target, rounds, "plain", redraft=again(target, "plain"))


@pytest.mark.parametrize("name", SAMPLINGS)
@pytest.mark.parametrize("target", TARGETS)
def test_the_adversary_is_caught_at_every_forced_token(target, name):
    power = adversary(TARGETS[target](), IDS.tolist(), tokens=40, allowed=ALLOWED, seed=0, sampling=SAMPLINGS[name])
    assert 4 <= power.forced <= 20
    assert (power.caught, power.ties) == (power.forced, 0)


class KeepsOneMore(TargetState):
    """Commits one token of the block too many where it can."""

    def commit(self, count: int) -> None:
        super().commit(min(count + 1, self._open_block().size))


def test_what_a_broken_state_emits_is_refused():
    sampling, state = SAMPLINGS["plain"], KeepsOneMore(dense())
    drafter = BlockLora(state, noisy_adapter(dense()), noise=3, bound=VOCABULARY, sampling=sampling)
    rounds = tuple(decode(state, drafter, IDS, k=K, limits=Limits(COUNT, frozenset()), sampling=sampling))
    with pytest.raises(ExactnessError, match="not lossless"):
        check("dense", rounds, "plain")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1000), st.floats(0.001, 0.999), st.sampled_from(sorted(SAMPLINGS)))
def test_logits_that_are_off_by_what_is_allowed_still_pass(key, uniform, name):
    """Off by a bfloat16 ULP, the filters' edges included, every draw passes."""
    rng, sampling, allowed = np.random.default_rng(key), replace(SAMPLINGS[name], temperature=0.7), 65536.0
    logits = (rng.normal(size=(1, 40)) * 4).astype(np.float32)
    unit = np.spacing(np.abs(logits.max()))
    moved = logits + (rng.choice([-1, 1], size=logits.shape) * allowed * 0.49 * unit).astype(np.float32)
    p = np.array(weights(moved, sampling))
    token = int(np.searchsorted(np.cumsum(p), uniform * p.sum(), side="right"))
    token = min(token, int(np.flatnonzero(p)[-1]))
    made = Decisions((uniform,), (float(p[token]),), (0.0,))
    result = Round(-1, 0, (), 0, 0, 0, (token,), False, 0, 0, None, made)
    [position] = sampled_positions(logits, result, sampling=sampling, allowed=allowed)
    assert position.margin_ulp <= allowed
    [strict] = sampled_positions(moved, result, sampling=sampling, allowed=1.0)
    assert strict.margin_ulp <= 1.0


def weights(logits: np.ndarray, sampling: Sampling) -> mx.array:
    from draftledger.decoding.sampling import distribution

    return distribution(mx.array(logits), sampling)[0]


def test_where_one_token_is_certain_any_other_is_out_of_reach():
    model = Fixed(np.array([[0.0, 9.0, 1.0]] * 3, dtype=np.float32))
    sampling = Sampling(1.0, top_k=1)
    rounds = list(
        decode(TargetState(model), Silent(), mx.array([0]), k=0, limits=Limits(3, frozenset()), sampling=sampling)
    )
    for position in check_sampled(model, [0], rounds, sampling=sampling, allowed=8.0):
        assert (position.token, position.argmax, position.margin_ulp) == (1, 1, 0.0)
        assert (position.runner_up, position.runner_up_ulp) == (2, FAR)
