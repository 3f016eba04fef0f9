"""Taps are the hidden states of committed tokens, as a walk over the layers by hand gives them."""

from functools import partial

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from draftledger.drafters.block_lora import gated, initial_weights
from draftledger.errors import ConfigError, UnsupportedError
from draftledger.models import state as state_module
from draftledger.models.state import TargetState
from draftledger.models.taps import Tapped
from draftledger.models.view import of_kind, with_modules
from targets import ATTENTION, SIZES, attention, dense, hybrid, prompt, random_model

PLAIN_GEMMA4 = {"num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0}
TARGETS = {
    "dense": dense,
    "hybrid": hybrid,
    "gemma3_text": partial(attention, "gemma3_text"),
    "gpt_oss": partial(attention, "gpt_oss"),
    "llama4": partial(attention, "llama4"),
    "gemma4_text": lambda: random_model("gemma4_text", {**SIZES, **ATTENTION["gemma4_text"], **PLAIN_GEMMA4}),
}


def inside(model: nn.Module) -> nn.Module:
    return model.language_model.model if "language_model" in model else model.model


def embedded(name: str, model: nn.Module, ids: mx.array) -> mx.array:
    root = mx.array(SIZES["hidden_size"] ** 0.5)
    scale = {"gemma3_text": root.astype(mx.bfloat16).astype(mx.float32), "gemma4_text": root}.get(name, 1.0)
    return inside(model).embed_tokens(ids[None]) * scale


def mask(name: str, index: int, length: int) -> mx.array | None:
    """What layer `index` of a target may see: all before, its window or chunk; a recurrent one takes no mask."""
    token, row = mx.arange(length)[:, None], mx.arange(length)[None]
    if name == "hybrid" and index % 4 != 3:
        return None
    if name == "llama4" and index % 4 != 3:
        return (row <= token) & (token // 6 == row // 6)
    window = {"gemma3_text": 5, "gemma4_text": 5, "gpt_oss": 6}.get(name) if index % 2 == 0 else None
    return (row <= token) & (token - row < (window or length))


def walk(name: str, model: nn.Module, ids: mx.array) -> list[np.ndarray]:
    """Every layer's output [T, D], layer after layer without caches."""
    h, outputs = embedded(name, model, ids), []
    for index, layer in enumerate(inside(model).layers):
        output = layer(h, mask(name, index, ids.size), None)
        h = output[0] if isinstance(output, tuple) else output
        outputs.append(np.array(h[0]))
    return outputs


@pytest.mark.parametrize("target", TARGETS)
def test_taps_of_committed_tokens_are_those_of_a_walk_by_hand(target, monkeypatch):
    monkeypatch.setattr(state_module, "PREFILL_CHUNK", 7)
    model, rng, tokens = TARGETS[target](), np.random.default_rng(1), prompt(20)
    taps = (len(model.layers) - 1, 0, 1)
    state, bare = TargetState(model, taps=taps), TargetState(model)
    assert (np.array(state.prefill(tokens)) == np.array(bare.prefill(tokens))).all()
    told = [state.take_taps()]
    assert told[0].shape == (20, 3, SIZES["hidden_size"])
    for number in range(5):
        block = prompt(int(rng.integers(1, 12)), key=number)
        kept = int(rng.integers(0, block.size + 1))
        state.run_block(prompt(5, key=50))
        state.rollback()
        assert (np.array(state.run_block(block)) == np.array(bare.run_block(block))).all()
        state.commit(kept)
        bare.commit(kept)
        tokens = mx.concatenate([tokens, block[:kept]])
        if number % 2:
            told.append(state.take_taps())
    told.append(state.take_taps())
    assert state.take_taps() is None
    ours = np.array(mx.concatenate([rows for rows in told if rows is not None]))
    theirs = walk(target, model, tokens)
    assert ours.shape[0] == tokens.size
    for place, tap in enumerate(taps):
        np.testing.assert_allclose(ours[:, place], theirs[tap], atol=2e-5 * abs(theirs[tap]).max())


def test_a_fork_tells_its_own_tokens():
    state = TargetState(dense(), taps=(1,))
    state.prefill(prompt(6))
    twin = state.fork()
    twin.run_block(prompt(3))
    twin.commit(2)
    assert (state.take_taps().shape[0], twin.take_taps().shape[0]) == (6, 8)


def test_no_taps_tell_nothing():
    state = TargetState(dense())
    state.prefill(prompt(6))
    assert state.take_taps() is None


def test_a_block_of_a_gated_twin_tells_the_twins_hidden_states():
    model, block = dense(), prompt(5, key=3)
    weights = initial_weights(model, modules=["up_proj", "q_proj"], rank=2, key=mx.random.key(1))
    noise = {name: mx.random.normal(value.shape, key=mx.random.key(2)) for name, value in weights.items()}
    twin = gated(model, noise, scale=1.0, first=0)
    state = TargetState(model, taps=(0, 1))
    state.prefill(prompt(6))
    state.take_taps()
    for runner in (model, twin, model):
        state.run_block(prompt(4, key=8), model=runner)
        state.rollback()
    expected, h = [], twin.model.embed_tokens(block[None])
    for layer, cache in zip(twin.model.layers, state.fork().caches, strict=True):
        h = layer(h, "causal", cache)
        expected.append(np.array(h[0, :3]))
    state.run_block(block, model=twin)
    state.commit(3)
    assert (np.array(state.take_taps()) == np.stack(expected, axis=1)).all()
    state.run_block(block)
    state.commit(3)
    assert abs(np.array(state.take_taps()) - np.stack(expected, axis=1)).max() > 0.1


def test_the_model_is_left_as_it_was_and_a_tapped_layer_is_still_of_its_class():
    model = attention("gpt_oss")
    before = [(type(layer), dict(layer), dict(vars(layer))) for layer in model.layers]
    tapped = Tapped(model, (0, 3))
    after = [(type(layer), dict(layer), dict(vars(layer))) for layer in model.layers]
    for old, new in zip(before, after, strict=True):
        assert old[0] is new[0]
        assert old[1].keys() == new[1].keys()
        assert old[2].keys() == new[2].keys()
    for layer, twin in zip(model.layers, tapped.twin.layers, strict=True):
        assert isinstance(twin, type(layer))
    assert [name for name, _ in tapped.twin.named_modules()] == [name for name, _ in model.named_modules()]


@pytest.mark.parametrize(("taps", "message"), [((0, 2), "taps: 2 is none"), ((-1,), "taps: -1 is none")])
def test_taps_beyond_the_layers_are_refused_in_one_line(taps, message):
    with pytest.raises(ConfigError, match=f"^{message} of the target's layers 0 to 1$"):
        TargetState(dense(), taps=taps)


def test_models_whose_layers_tell_no_hidden_states_are_refused_in_one_line():
    unwalked = random_model("iquestloopcoder", {**SIZES, "loop_window_size": 5})
    with pytest.raises(UnsupportedError, match=r"^taps: layer 1 of Model tells nothing; use no taps$"):
        TargetState(unwalked, taps=(1,)).prefill(prompt())

    class Doubled(type(dense().layers[0])):
        def __call__(self, *args, **kwargs):
            return mx.stack([super().__call__(*args, **kwargs)] * 2)

    doubled = with_modules(dense(), {"model.layers.1": of_kind(dense().layers[1], Doubled)})
    with pytest.raises(UnsupportedError, match=r"^taps: layer 1 of Model tells an output of shape \(2, 1, 8, 32\);"):
        TargetState(doubled, taps=(1,)).prefill(prompt())

    class Without(nn.Module):
        def make_cache(self):
            return []

    with pytest.raises(UnsupportedError, match="Without has no layers to tap"):
        TargetState(Without(), taps=(0,))
