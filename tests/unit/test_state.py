"""The target's state: after every commit it equals that of a fresh forward over the committed tokens."""

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import ConcatenateKVCache

from draftledger.errors import ConfigError, UnsupportedError
from draftledger.models import state as state_module
from draftledger.models.state import TargetState, why_not
from draftledger.models.view import of_kind
from draftledger.models.window_caches import Rows
from states import close, contents, continuation, same_contents
from targets import ATTENTION, VOCABULARY, attention, dense, greedy, hybrid, prompt, quantised

TARGETS = {"hybrid": hybrid, "dense": dense, "tied": lambda: dense(tied=True)}
TARGETS |= {kind: lambda kind=kind: attention(kind) for kind in ATTENTION}
EVERY = {**TARGETS, "quantised": quantised}


@pytest.fixture(autouse=True)
def few_spare_rows(monkeypatch):
    """Windows move to new buffers often."""
    monkeypatch.setattr(Rows, "step", 4)


def drawn(rng: np.random.Generator, width: int) -> mx.array:
    return mx.array(rng.integers(0, VOCABULARY, width), dtype=mx.int32)


@pytest.mark.parametrize("target", TARGETS)
def test_after_random_rounds_logits_and_contents_are_those_of_a_fresh_forward(target):
    """Against one forward without caches over all tokens, past the wrap of every window, blocks wider than windows."""
    model, rng = TARGETS[target](), np.random.default_rng(3)
    tokens = drawn(rng, 13)
    state = TargetState(model)
    assert close(np.array(state.prefill(tokens)), np.array(model(tokens[None])[0, -1]))
    while tokens.size < 50:
        for action in rng.choice(["commit", "rollback", "fork"], size=3):
            block = drawn(rng, int(rng.integers(1, 17)))
            runner = state.fork() if action == "fork" else state
            logits = np.array(runner.run_block(block))
            fresh = np.array(model(mx.concatenate([tokens, block])[None])[0, tokens.size :])
            assert close(logits, fresh)
            assert (logits.argmax(axis=-1) == fresh.argmax(axis=-1)).all()
            kept = int(rng.integers(0, block.size + 1))
            if action == "rollback":
                runner.rollback()
            else:
                runner.commit(kept)
            if action == "commit":
                tokens = mx.concatenate([tokens, block[:kept]])
            assert state.length == tokens.size
    fresh = TargetState(model)
    fresh.prefill(tokens)
    assert same_contents(state, fresh, 4)
    assert close(continuation(state), continuation(fresh))


def test_quantised_keys_and_values_are_those_of_a_fresh_pass():
    """What a block is rounded to may differ by one step of eight bits, no more."""
    model, rng = quantised(), np.random.default_rng(5)
    state, tokens = TargetState(model), prompt(13)
    state.prefill(tokens)
    for _ in range(6):
        block = drawn(rng, int(rng.integers(1, 17)))
        kept = int(rng.integers(0, block.size + 1))
        state.run_block(block)
        state.commit(kept)
        tokens = mx.concatenate([tokens, block[:kept]])
    fresh = TargetState(model)
    fresh.prefill(tokens)
    assert state.replays == 0
    np.testing.assert_allclose(continuation(state), continuation(fresh), atol=0.02 * abs(continuation(fresh)).max())


@pytest.mark.parametrize("target", EVERY)
def test_what_was_rejected_leaves_no_trace_to_the_bit(target):
    model, after = EVERY[target](), []
    for key in (1, 2):
        state = TargetState(model)
        state.prefill(prompt(9))
        state.run_block(mx.concatenate([prompt(3, key=9), prompt(6, key=key)]))
        state.commit(3)
        state.run_block(prompt(4, key=key + 5))
        state.rollback()
        after.append([continuation(state), *contents(state)])
    assert all((a == b).all() for a, b in zip(*after, strict=True))


@pytest.mark.parametrize("target", EVERY)
def test_what_a_fork_runs_never_reaches_the_state(target):
    state = TargetState(EVERY[target]())
    state.prefill(prompt(7))
    before = continuation(state)
    twin = state.fork()
    assert (continuation(twin) == before).all()
    mx.eval(twin.run_block(prompt(6, key=9)))
    twin.commit(6)
    assert twin.length == state.length + 6
    assert (continuation(state) == before).all()
    moved = continuation(twin)
    state.run_block(prompt(8, key=10))
    state.commit(8)
    assert (continuation(twin) == moved).all()


@pytest.mark.parametrize("target", EVERY)
def test_a_prompt_in_chunks_is_a_prompt(target, monkeypatch):
    model, ids = EVERY[target](), prompt(40, key=4)
    whole = TargetState(model)
    logits = np.array(whole.prefill(ids))
    monkeypatch.setattr(state_module, "PREFILL_CHUNK", 7)
    parts = TargetState(model)
    tolerance = 0.02 if target == "quantised" else 2e-5
    assert abs(np.array(parts.prefill(ids)) - logits).max() <= tolerance * abs(logits).max()
    assert parts.length == whole.length == 40


@pytest.mark.parametrize("target", EVERY)
def test_answers_vary(target):
    assert len(set(greedy(EVERY[target](), prompt(9), 30))) >= 8


def test_only_a_layer_that_records_nothing_replays_and_only_on_partial_acceptance():
    for model, most in ((hybrid(), 1), (dense(), 0), *((attention(kind), 0) for kind in ATTENTION)):
        state = TargetState(model)
        state.prefill(prompt(7))
        state.run_block(prompt(4, key=2))
        state.commit(4)
        assert state.replays == 0
        state.run_block(prompt(4, key=3))
        state.commit(2)
        assert state.replays <= most


def test_begin_and_commit_run_no_forward():
    widths = []

    class Counted(type(dense())):
        def __call__(self, ids, cache=None):
            widths.append(ids.shape[1])
            return super().__call__(ids, cache=cache)

    state = TargetState(of_kind(dense(), Counted))
    state.prefill(prompt(7))
    state.run_block(prompt(5))
    state.rollback()
    state.run_block(prompt(5))
    state.commit(2)
    assert widths == [6, 1, 5, 5]


def test_misuse_is_refused_in_one_line():
    state = TargetState(dense())
    for misuse in (lambda: state.commit(1), state.rollback):
        with pytest.raises(UnsupportedError, match="run_block comes before"):
            misuse()
    state.prefill(prompt(7))
    state.run_block(prompt(3))
    for misuse in (lambda: state.run_block(prompt(3)), state.fork):
        with pytest.raises(UnsupportedError, match="a block is open"):
            misuse()
    for count in (-1, 4):
        with pytest.raises(UnsupportedError, match="has 3 tokens"):
            state.commit(count)
    state.commit(3)
    assert state.length == 10


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (mx.zeros((0,), dtype=mx.int32), "at least one token"),
        (mx.zeros((2, 5), dtype=mx.int32), r"shape \[2, 5\]; give one row"),
        (mx.zeros((4097,), dtype=mx.int32), "4097 tokens exceed the target's context of 4096"),
    ],
)
@pytest.mark.parametrize("target", ["hybrid", "qwen3", "llama4"])
def test_prompts_that_cannot_be_answered_are_refused_in_one_line(target, ids, message):
    state = TargetState(TARGETS[target]())
    with pytest.raises(ConfigError, match=message):
        state.prefill(ids)
    assert state.length == 0
    if ids.size < 20:
        with pytest.raises(ConfigError, match=message):
            state.run_block(ids)


class Odd(type(dense())):
    """A target with caches of a kind that nobody can roll back."""

    def make_cache(self):
        return [ConcatenateKVCache() for _ in self.layers]


def test_an_unknown_cache_goes_forward_and_refuses_the_rest_in_one_line():
    model = of_kind(dense(), Odd)
    refused = "ConcatenateKVCache: a target with this cache cannot be rolled back exactly"
    assert why_not(model) == refused
    assert greedy(model, prompt(), 12) == greedy(dense(), prompt(), 12)
    state = TargetState(model)
    state.prefill(prompt())
    with pytest.raises(UnsupportedError, match=f"^{refused}; use arm `ar`$"):
        state.fork()
    state.run_block(prompt(3))
    for misuse in (lambda: state.commit(1), state.rollback):
        with pytest.raises(UnsupportedError, match=f"^{refused}; use arm `ar`$"):
            misuse()


@pytest.mark.parametrize("target", EVERY)
def test_known_caches_have_no_reason(target):
    assert why_not(EVERY[target]()) is None
