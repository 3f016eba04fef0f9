"""The recurrence in chunks: the same numbers as token by token, forwards and backwards."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx.utils import tree_flatten
from mlx_lm.models.gated_delta import gated_delta_ops

from draftledger.models.gated_delta import ChunkedGatedDeltaNet, gated_delta_chunks
from draftledger.models.tiny import architecture, build_model, training_twin
from targets import SPEC, VOCABULARY, hybrid
from teachers import tokens

LENGTHS = [1, 15, 16, 17, 40]
B, H, DK, DV = 2, 3, 8, 6


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def inputs(length: int, kind: str, seed: int = 0) -> dict[str, np.ndarray]:
    """q, k, v, log_g, beta and a state; the adversarial kinds write on top of what is there."""
    draws = np.random.default_rng(seed)
    q, k = (unit(draws.normal(size=(B, length, H, DK))) for _ in range(2))
    found = {"q": q, "k": k, "v": draws.normal(size=(B, length, H, DV)), "state": draws.normal(size=(B, H, DV, DK))}
    found |= {"log_g": -draws.exponential(size=(B, length, H)), "beta": draws.uniform(size=(B, length, H))}
    if kind in ("writes all", "keeps all", "equal keys"):
        found["beta"] = np.full((B, length, H), 1 - 1e-6)
    if kind in ("keeps all", "equal keys"):
        found["log_g"] = np.full((B, length, H), -1e-6)
    if kind == "equal keys":
        found["k"] = np.broadcast_to(k[:, :1], k.shape)
    if kind == "forgets all":
        found["log_g"] = np.full((B, length, H), -60.0)
    return {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in found.items()}


def sequential(x: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The recurrence token by token in float64."""
    x = {name: value.astype(np.float64) for name, value in x.items()}
    state, rows = x["state"], []
    for t in range(x["q"].shape[1]):
        k, q = x["k"][:, t, :, None], x["q"][:, t, :, None]
        state = state * np.exp(x["log_g"][:, t])[..., None, None]
        wrong = x["v"][:, t] - (state * k).sum(axis=-1)
        state = state + (x["beta"][:, t, :, None] * wrong)[..., None] * k
        rows.append((state * q).sum(axis=-1))
    return np.stack(rows, axis=1), state


def chunked(x: dict[str, mx.array]) -> tuple[mx.array, mx.array]:
    return gated_delta_chunks(x["q"], x["k"], x["v"], log_g=x["log_g"], beta=x["beta"], state=x["state"])


def mlx_lm(x: dict[str, mx.array]) -> tuple[mx.array, mx.array]:
    return gated_delta_ops(x["q"], x["k"], x["v"], mx.exp(x["log_g"]), x["beta"], x["state"])


def arrays(x: dict[str, np.ndarray]) -> dict[str, mx.array]:
    return {name: mx.array(value) for name, value in x.items()}


def close(found: mx.array, expected: np.ndarray, relative: float = 1e-5) -> None:
    """Every element is within `relative` of the largest one."""
    assert np.abs(np.array(found) - expected).max() <= relative * max(1.0, np.abs(expected).max())


KINDS = ["random", "writes all", "keeps all", "equal keys", "forgets all"]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_state_are_those_of_one_token_at_a_time(length, kind):
    x = inputs(length, kind)
    expected = sequential(x)
    for found in (chunked(arrays(x)), mlx_lm(arrays(x))):
        for array, wanted in zip(found, expected, strict=True):
            assert array.shape == wanted.shape
            close(array, wanted)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(0, 10**6))
def test_random_lengths_agree_too(length, seed):
    x = inputs(length, "random", seed)
    for array, wanted in zip(chunked(arrays(x)), sequential(x), strict=True):
        close(array, wanted)


@pytest.mark.parametrize("length", [1, 17, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_the_sequential_form(length, kind):
    x = arrays(inputs(length, kind))

    def total(form):
        def value(y):
            rows, state = form(y)
            return (rows * mx.cos(rows)).sum() + (state**2).sum()

        return mx.grad(value)(x)

    one, two = total(chunked), total(mlx_lm)
    for name in x:
        close(one[name], np.array(two[name]), 1e-4)


def test_a_state_carried_over_a_cut_gives_the_uncut_run():
    x = arrays(inputs(40, "random"))
    whole, end = chunked(x)
    first, middle = chunked({n: v if n == "state" else v[:, :23] for n, v in x.items()})
    second, last = chunked({n: middle if n == "state" else v[:, 23:] for n, v in x.items()})
    close(mx.concatenate([first, second], axis=1), np.array(whole))
    close(last, np.array(end))


@pytest.mark.parametrize("length", LENGTHS)
def test_the_layers_twin_is_the_layer(length):
    layer = hybrid().language_model.model.layers[0].linear_attn
    x = mx.random.normal((2, length, SPEC["width"]), key=mx.random.key(length))
    np.testing.assert_allclose(np.array(ChunkedGatedDeltaNet(layer)(x)), np.array(layer(x)), atol=2e-5)


def test_heads_of_values_may_share_a_head_of_keys():
    config = architecture(SPEC, vocabulary=VOCABULARY, eos=0) | {"linear_num_value_heads": 4}
    layer = build_model(config, seed=1).language_model.model.layers[0].linear_attn
    x = mx.random.normal((2, 20, SPEC["width"]), key=mx.random.key(1))
    np.testing.assert_allclose(np.array(ChunkedGatedDeltaNet(layer)(x)), np.array(layer(x)), atol=2e-5)


def test_the_models_training_twin_has_its_loss_and_gradients():
    model = build_model(architecture(SPEC, vocabulary=VOCABULARY, eos=0), seed=4)
    batch = mx.array(tokens(2, 18))

    def measured(net):
        def loss(batch):
            return nn.losses.cross_entropy(net(batch[:, :-1]), batch[:, 1:]).mean()

        value, gradients = nn.value_and_grad(net, loss)(batch)
        return value.item(), {name.replace(".base.", "."): np.array(g) for name, g in tree_flatten(gradients)}

    (plain, one), (twin, two) = measured(model), measured(training_twin(model))
    assert twin == pytest.approx(plain, rel=1e-5)
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_allclose(two[name], one[name], atol=1e-4 * max(1.0, np.abs(one[name]).max()))
