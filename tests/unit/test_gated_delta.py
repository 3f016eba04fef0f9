"""The recurrence over a block at once: the same numbers as token by token, forwards, backwards and within the block."""

from itertools import product

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx.utils import tree_flatten
from mlx_lm.models.gated_delta import gated_delta_ops

from draftledger.models.exact import exact
from draftledger.models.gated_delta import CHUNK, gated_delta, in_chunks, one_by_one
from draftledger.models.tiny import architecture, build_model
from targets import SPEC, VOCABULARY
from teachers import tokens

LENGTHS = [1, 2, 15, 17, CHUNK, CHUNK + 1, 2 * CHUNK + 8]
B, HK, HV, DK, DV = 2, 2, 4, 8, 6
KINDS = ["random", "writes all", "keeps all", "equal keys", "forgets all", "by column"]


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def inputs(length: int, kind: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Queries and keys, v, log_g, beta and a state; the adversarial kinds write on top of what is there."""
    draws = np.random.default_rng(seed)
    qk = unit(draws.normal(size=(B, HK, 2, length, DK)))
    found = {"qk": qk, "v": draws.normal(size=(B, length, HV, DV)), "state": draws.normal(size=(B, HV, DV, DK))}
    columns = (DK,) if kind == "by column" else ()
    found |= {"log_g": -draws.exponential(size=(B, length, HV, *columns)), "beta": draws.uniform(size=(B, length, HV))}
    if kind in ("writes all", "keeps all", "equal keys"):
        found["beta"] = np.full((B, length, HV), 1 - 1e-6)
    if kind in ("keeps all", "equal keys"):
        found["log_g"] = np.full((B, length, HV), -1e-6)
    if kind == "equal keys":
        found["qk"][:, :, 1] = qk[:, :, 1, :1]
    if kind == "forgets all":
        found["log_g"] = np.full((B, length, HV), -60.0)
    return {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in found.items()}


def sequential(x: dict[str, np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The outputs, and the state after each token, one token at a time in float64."""
    x = {name: value.astype(np.float64) for name, value in x.items()}
    state, rows, states = x["state"], [], []
    log_g = x["log_g"] if x["log_g"].ndim == 4 else x["log_g"][..., None]
    for t in range(x["v"].shape[1]):
        q, k = (np.repeat(x["qk"][:, :, part, t], HV // HK, axis=1)[:, :, None] for part in (0, 1))
        state = state * np.exp(log_g[:, t])[:, :, None]
        wrong = x["v"][:, t] - (state * k).sum(axis=-1)
        state = state + (x["beta"][:, t, :, None] * wrong)[..., None] * k
        rows.append((state * q).sum(axis=-1))
        states.append(state)
    return np.stack(rows, axis=1), states


def tokens_only(x: dict[str, mx.array], low: int, high: int) -> dict[str, mx.array]:
    """The same inputs of tokens low to high."""
    cut = {name: x[name][:, low:high] for name in ("v", "log_g", "beta")}
    return {**cut, "qk": x["qk"][..., low:high, :], "state": x["state"]}


def whole(x: dict[str, mx.array], form=in_chunks) -> tuple[mx.array, mx.array]:
    y, after = form(x["qk"], x["v"], log_g=x["log_g"], beta=x["beta"], state=x["state"])
    return y, after(x["v"].shape[1])


def arrays(x: dict[str, np.ndarray]) -> dict[str, mx.array]:
    return {name: mx.array(value) for name, value in x.items()}


def close(found: mx.array, expected: np.ndarray, relative: float = 1e-5) -> None:
    """Every element is within `relative` of the largest one."""
    assert found.shape == expected.shape
    assert np.abs(np.array(found) - expected).max() <= relative * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("form", [in_chunks, one_by_one, gated_delta])
@pytest.mark.parametrize(("length", "kind"), list(product(LENGTHS, KINDS)))
def test_outputs_and_every_state_are_those_of_one_token_at_a_time(length, kind, form):
    x = inputs(length, kind)
    rows, states = sequential(x)
    given_ = arrays(x)
    y, after = form(given_["qk"], given_["v"], **{name: given_[name] for name in ("log_g", "beta", "state")})
    close(y, rows)
    for count in {1, 2, length // 2, length - 1, length} & set(range(1, length + 1)):
        close(after(count), states[count - 1])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 70), st.sampled_from(KINDS), st.integers(0, 10**6), st.data())
def test_random_lengths_and_prefixes_agree_too(length, kind, seed, data):
    x = inputs(length, kind, seed)
    rows, states = sequential(x)
    given_ = arrays(x)
    y, after = in_chunks(given_["qk"], given_["v"], **{name: given_[name] for name in ("log_g", "beta", "state")})
    close(y, rows)
    count = data.draw(st.integers(1, length))
    close(after(count), states[count - 1])


@pytest.mark.parametrize(("length", "kind"), list(product([1, 17, CHUNK + 8], KINDS)))
def test_gradients_are_those_of_the_sequential_form(length, kind):
    x = arrays(inputs(length, kind))

    def mlx_lm(y):
        q, k = (y["qk"][:, :, part].swapaxes(1, 2) for part in (0, 1))
        return gated_delta_ops(q, k, y["v"], mx.exp(y["log_g"]), y["beta"], y["state"])

    def gradient(form):
        def value(y):
            rows, state = form(y)
            return (rows * mx.cos(rows)).sum() + (state**2).sum()

        return mx.grad(value)(x)

    one, two = gradient(whole), gradient(mlx_lm)
    for name in x:
        close(one[name], np.array(two[name]), 1e-4)


def test_a_state_carried_over_a_cut_gives_the_uncut_run():
    x = arrays(inputs(40, "random"))
    uncut, end = whole(x)
    first, middle = whole(tokens_only(x, 0, 23))
    second, last = whole({**tokens_only(x, 23, 40), "state": middle})
    close(mx.concatenate([first, second], axis=1), np.array(uncut))
    close(last, np.array(end))


def test_the_twin_has_the_models_loss_and_gradients():
    model = build_model(architecture(SPEC, vocabulary=VOCABULARY, eos=0), seed=4)
    batch = mx.array(tokens(2, 18))

    def measured(net):
        def loss(batch):
            return nn.losses.cross_entropy(net(batch[:, :-1]), batch[:, 1:]).mean()

        value, gradients = nn.value_and_grad(net, loss)(batch)
        return value.item(), {name: np.array(gradient) for name, gradient in tree_flatten(gradients)}

    (theirs, one), (ours, two) = measured(model), measured(exact(model))
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_allclose(two[name], one[name], atol=1e-4 * max(1.0, np.abs(one[name]).max()))
