"""The decode loop: every arm's tokens are the target's own, wherever the answer ends."""

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ConcatenateKVCache

from draftledger.decoding.arms import Arm, run_arm
from draftledger.decoding.clock import StageClock
from draftledger.decoding.loop import Limits, Round, cut, decode
from draftledger.decoding.mlx_lm import generate
from draftledger.decoding.sampling import Sampling
from draftledger.drafters.ar import Silent
from draftledger.drafters.base import Adapter, Proposal
from draftledger.drafters.block_lora import BlockLora, gated, initial_weights
from draftledger.drafters.lookup import Lookup
from draftledger.drafters.oracle import Oracle
from draftledger.models.state import TargetState
from draftledger.models.view import of_kind
from targets import VOCABULARY, dense, greedy, hybrid, naive, prompt

TARGETS = {"hybrid": hybrid, "dense": dense, "tied": lambda: dense(True)}
COUNT = 40


def drafters(name, state, ids, answer):
    if name.startswith("oracle"):
        rate = float(name.removeprefix("oracle"))
        return Oracle(answer, corruption=rate, vocabulary=VOCABULARY, noise=7)
    if name == "lookup":
        return Lookup(ids.tolist(), ngram=1)
    weights = initial_weights(state.model, modules=["q_proj", "up_proj"], rank=4, key=mx.random.key(1))
    noisy = {key: mx.random.normal(value.shape, key=mx.random.key(2)) * 0.3 for key, value in weights.items()}
    return BlockLora(
        state, Adapter(gated(state.model, noisy, scale=1.0, first=1), {"scale": 1.0}), noise=3, bound=VOCABULARY
    )


def run(model, drafter_name, ids, *, k, limits, answer) -> list[Round]:
    state = TargetState(model)
    return list(decode(state, drafters(drafter_name, state, ids, answer), ids, k=k, limits=limits))


def emitted(rounds):
    return [token for result in rounds for token in result.committed]


@pytest.mark.parametrize("target", TARGETS)
def test_greedy_equals_a_cacheless_reference_and_varies(target):
    model = TARGETS[target]()
    answer = greedy(model, prompt(), COUNT)
    assert answer == naive(model, prompt(), COUNT)
    assert len(set(answer)) >= 8


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("drafter", ["oracle0", "oracle0.2", "oracle0.5", "oracle1", "lookup", "block_lora"])
def test_speculation_emits_the_autoregressive_answer(target, drafter):
    model, ids = TARGETS[target](), prompt(12, key=1)
    answer = greedy(model, ids, COUNT)
    for k in (1, 2, 5):
        rounds = run(model, drafter, ids, k=k, limits=Limits(COUNT, frozenset()), answer=answer)
        assert emitted(rounds) == answer


@pytest.mark.parametrize("target", TARGETS)
def test_zero_partial_and_full_acceptance_all_occur(target):
    model, ids, k = TARGETS[target](), prompt(12, key=1), 4
    answer = greedy(model, ids, COUNT)
    rounds = run(model, "oracle0.4", ids, k=k, limits=Limits(COUNT, frozenset()), answer=answer)
    seen = {result.accepted for result in rounds[1:] if len(result.draft) == k}
    assert {0, k} < seen


@pytest.mark.parametrize("target", ["hybrid", "dense"])
@pytest.mark.parametrize("drafter", ["oracle0", "oracle0.5", "block_lora"])
def test_every_length_limit_is_met_exactly(target, drafter):
    model, ids, k = TARGETS[target](), prompt(12, key=1), 4
    answer = greedy(model, ids, 2 * k + 2)
    for count in range(1, 2 * k + 2):
        rounds = run(model, drafter, ids, k=k, limits=Limits(count, frozenset()), answer=answer)
        assert emitted(rounds) == answer[:count]
        assert [result.stop for result in rounds] == [None] * (len(rounds) - 1) + ["length"]


@pytest.mark.parametrize("target", ["hybrid", "dense"])
@pytest.mark.parametrize("drafter", ["oracle0", "oracle0.5", "block_lora"])
def test_an_end_token_stops_at_every_index_of_a_block(target, drafter):
    model, ids, k = TARGETS[target](), prompt(12, key=1), 4
    answer = greedy(model, ids, COUNT)
    firsts = {answer.index(token) for token in answer}
    for place in sorted(firsts & set(range(2 * k + 2))):
        eos = frozenset({answer[place]})
        rounds = run(model, drafter, ids, k=k, limits=Limits(COUNT, eos), answer=answer)
        assert emitted(rounds) == answer[: place + 1]
        assert rounds[-1].stop == "eos"


def test_mlx_lm_tells_the_same_answer_as_rounds_of_one():
    rounds = list(generate(dense(), prompt(), limits=Limits(COUNT, frozenset())))
    assert emitted(rounds) == greedy(dense(), prompt(), COUNT)
    assert [result.index for result in rounds] == list(range(-1, COUNT - 1))
    stop = emitted(rounds)[3]
    cut_short = list(generate(dense(), prompt(), limits=Limits(COUNT, frozenset({stop}))))
    assert emitted(cut_short)[-1] == stop
    assert cut_short[-1].stop == "eos"


def test_a_clock_with_barriers_changes_no_token_and_sums_stages():
    state, clock, ids = TargetState(hybrid()), StageClock(), prompt()
    answer = greedy(hybrid(), ids, COUNT)
    drafter = Oracle(answer, corruption=0.5, vocabulary=VOCABULARY, noise=1)
    rounds = decode(state, drafter, ids, k=3, limits=Limits(COUNT, frozenset()), clock=clock)
    assert emitted(rounds) == answer
    assert set(clock.seconds) == {"host", "draft", "verify", "commit"}


def test_a_limit_that_falls_on_a_round_edge_truncates_nothing():
    assert cut((1, 2), Limits(2, frozenset()), ()) == ((1, 2), "length")
    assert cut((1, 9, 2), Limits(3, frozenset({9})), ()) == ((1, 9), "eos")
    assert cut((1, 9), Limits(1, frozenset({9})), ()) == ((1,), "length")
    assert cut((1,), Limits(5, frozenset()), (4,)) == ((1,), None)


def test_lookup_proposes_what_followed_and_nothing_when_nothing_matches():
    drafter = Lookup([1, 2, 3, 1], ngram=1)
    assert drafter.propose(mx.array([1]), 2, step=0).tokens.tolist() == [2, 3]
    drafter.append_context([8])
    assert drafter.propose(mx.array([8]), 2, step=1).tokens.size == 0


@pytest.mark.parametrize("drafter", ["oracle0", "oracle0.5", "block_lora"])
def test_stop_strings_end_an_answer_at_every_token_of_a_block(drafter):
    model, ids, k = dense(), prompt(12, key=1), 4
    answer = greedy(model, ids, COUNT)

    def text(tokens) -> str:
        return "".join(f"<{token}>" for token in tokens)

    for place in range(1, 2 * k + 2):
        stop = text(answer[place - 1 : place + 1])
        first = next(i for i in range(place + 1) if stop in text(answer[: i + 1]))
        limits = Limits(COUNT, frozenset(), (stop[2:-1],), text)
        rounds = run(model, drafter, ids, k=k, limits=limits, answer=answer)
        assert emitted(rounds) == answer[: first + 1]
        assert rounds[-1].stop == "stop"
        assert all(result.stop is None for result in rounds[:-1])


@pytest.mark.parametrize("drafter", ["oracle0", "block_lora"])
def test_no_cap_is_the_drafters_whole_block_and_a_cap_is_not_exceeded(drafter):
    model, ids = dense(), prompt(12, key=1)
    answer = greedy(model, ids, COUNT)
    for cap, width in ((0, 6), (2, 2), (9, 6)):
        state = TargetState(model)
        made = drafters(drafter, state, ids, answer)
        made.block = 6
        rounds = list(decode(state, made, ids, k=cap, limits=Limits(COUNT, frozenset())))
        assert emitted(rounds) == answer
        assert max(result.offered for result in rounds) == width


SAMPLED = Sampling(0.8, top_p=0.95, seed=4)


@pytest.mark.parametrize(
    ("target", "drafter"),
    [("hybrid", "block_lora"), *(("dense", name) for name in ("ar", "lookup", "oracle0.5", "block_lora"))],
)
def test_sampled_answers_repeat_under_their_key_and_end_as_asked(target, drafter):
    model, ids = TARGETS[target](), prompt(12, key=1)
    settings = {
        "ar": {"kind": "ar"},
        "lookup": {"kind": "lookup", "k": 3, "ngram": 1},
        "oracle0.5": {"kind": "oracle", "k": 3},
        "block_lora": {"kind": "block_lora", "k": 3, "noise_bound": VOCABULARY},
    }[drafter]
    arm = Arm(drafter, settings, sampling=SAMPLED)
    known = tuple(greedy(model, ids, COUNT))

    def decoded(noise: int, clock=None, count: int = COUNT) -> list[Round]:
        limits = Limits(count, frozenset())
        return list(run_arm(model, arm, ids.tolist(), limits=limits, noise=noise, answer=known, clock=clock))

    first = decoded(1)
    assert len(emitted(first)) == COUNT
    assert first == decoded(1) == decoded(1, StageClock())
    assert emitted(decoded(2)) != emitted(first)
    for count in (1, 2, 4, 7):
        assert emitted(decoded(1, count=count)) == emitted(first)[:count]
    assert all(result.decisions is not None for result in first)


def test_a_silent_drafters_rounds_are_queued_ahead_when_sampling_too():
    started = []

    class Told(TargetState):
        def run_block(self, ids, *, model=None):
            started.append(len(started))
            return super().run_block(ids, model=model)

    Told(dense()).prefill(prompt())
    prefill = len(started)
    rounds = decode(Told(dense()), Silent(), prompt(), k=0, limits=Limits(5, frozenset()), sampling=SAMPLED)
    assert [len(started) - 2 * prefill for _ in rounds] == [1, 2, 3, 4, 5]


def test_mlx_lm_draws_the_same_answer_from_the_same_key():
    limits = Limits(COUNT, frozenset())
    theirs = list(generate(dense(), prompt(), limits=limits, sampling=SAMPLED))
    ours = list(decode(TargetState(dense()), Silent(), prompt(), k=0, limits=limits, sampling=SAMPLED))
    assert emitted(theirs) == emitted(ours)
    assert [result.decisions.uniform for result in theirs] == [result.decisions.uniform for result in ours]


def test_a_refused_free_token_tests_no_speculative_one():
    model, ids = dense(), prompt(12, key=1)
    answer = greedy(model, ids, COUNT)

    class Misread(Oracle):
        free = 1

        def propose(self, anchor, k, *, step):
            made = super().propose(anchor, k + 1, step=step).tokens
            wrong = mx.concatenate([(made[:1] + 1) % VOCABULARY, made[1:]])
            return Proposal(wrong if step % 2 else made)

    rounds = list(decode(TargetState(model), Misread(answer), ids, k=3, limits=Limits(COUNT, frozenset())))
    assert emitted(rounds) == answer
    for result in rounds[1:-1]:
        lost = result.index % 2
        assert (result.free, result.free_accepted, result.offered) == (1, 1 - lost, 0 if lost else 3)
        assert len(result.draft) == 4
        assert len(result.committed) == result.accepted + 1 + result.free_accepted


class Odd(type(dense())):
    """A target with caches of a kind that nobody can roll back."""

    def make_cache(self):
        return [ConcatenateKVCache() for _ in self.layers]


def test_a_target_that_cannot_be_rolled_back_is_decoded_without_drafts_and_says_why():
    ids, limits = prompt(12, key=1).tolist(), Limits(COUNT, frozenset())
    for kind, reasons in {"ar": 0, "lookup": 1, "mlx_lm_ar": 0}.items():
        arm = Arm(kind, {"kind": kind, "k": 3, "ngram": 1})
        rounds = list(run_arm(of_kind(dense(), Odd), arm, ids, limits=limits, noise=1))
        assert emitted(rounds) == greedy(dense(), mx.array(ids), COUNT)
        told = [result.reason for result in rounds if result.reason]
        assert told == ["ConcatenateKVCache: a target with this cache cannot be rolled back exactly"] * reasons
        assert not any(result.draft for result in rounds)
