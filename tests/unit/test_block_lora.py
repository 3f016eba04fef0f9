"""The gated adapter: a no-op at first, invisible to the anchor, strict about shapes, and lossless to the target."""

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from draftledger.drafters.block_lora import adapted_paths, gated, initial_weights
from draftledger.errors import ConfigError, UnsupportedError
from draftledger.models.state import TargetState
from draftledger.models.view import with_modules
from targets import VOCABULARY, dense, hybrid, prompt

MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TARGETS = {"hybrid": hybrid, "dense": dense}


def adapter(model, *, zero: bool) -> dict[str, mx.array]:
    weights = initial_weights(model, modules=MODULES, rank=4, key=mx.random.key(0))
    return weights if zero else {n: 0.2 * mx.random.normal(w.shape, key=mx.random.key(3)) for n, w in weights.items()}


@pytest.mark.parametrize("target", TARGETS)
def test_a_zero_adapter_is_the_bare_model_to_the_bit(target):
    model, ids = TARGETS[target](), prompt()[None]
    assert (np.array(gated(model, adapter(model, zero=True), scale=8.0, first=1)(ids)) == np.array(model(ids))).all()


@pytest.mark.parametrize("target", TARGETS)
def test_the_anchor_row_is_the_targets_and_noise_rows_are_not(target):
    model = TARGETS[target]()
    twin = gated(model, adapter(model, zero=False), scale=2.0, first=1)
    state, block = TargetState(model), prompt(5, key=4)
    state.prefill(prompt())
    drafted = np.array(state.run_block(block, model=twin))
    state.rollback()
    bare = np.array(state.run_block(block))
    assert (drafted[0] == bare[0]).all()
    assert (np.abs(drafted[1:] - bare[1:]).max(axis=-1) > 1e-3).all()


@pytest.mark.parametrize("target", TARGETS)
def test_building_and_running_a_twin_leaves_the_target_untouched(target):
    model = TARGETS[target]()
    before = {name: np.array(value) for name, value in tree_flatten(model.parameters())}
    mx.eval(gated(model, adapter(model, zero=False), scale=2.0, first=0)(prompt()[None]))
    after = dict(tree_flatten(model.parameters()))
    assert before.keys() == after.keys()
    assert all((before[name] == np.array(after[name])).all() for name in before)


def test_the_update_is_the_low_rank_product_on_gated_rows():
    model = dense()
    path = "model.layers.0.mlp.up_proj"
    weights = {f"{path}.lora_a": mx.random.normal((32, 2)), f"{path}.lora_b": mx.random.normal((2, 64))}
    layer = gated(model, weights, scale=3.0, first=2).model.layers[0].mlp.up_proj
    x = mx.random.normal((2, 5, 32))
    base = np.array(x) @ np.array(model.model.layers[0].mlp.up_proj.weight).T
    update = 3.0 * np.array(x) @ np.array(weights[f"{path}.lora_a"]) @ np.array(weights[f"{path}.lora_b"])
    update[:, :2] = 0
    np.testing.assert_allclose(np.array(layer(x)), base + update, rtol=1e-4, atol=1e-4)


def test_an_adapter_of_another_target_is_refused():
    other = adapter(dense(), zero=True)
    with pytest.raises(UnsupportedError, match="no module"):
        gated(hybrid(), other, scale=1.0, first=1)
    path = next(iter(other)).rsplit(".", 1)[0]
    with pytest.raises(UnsupportedError, match="not those of this target"):
        gated(dense(), other | {f"{path}.lora_a": mx.zeros((31, 4))}, scale=1.0, first=1)
    with pytest.raises(UnsupportedError, match="lora_a and lora_b"):
        gated(dense(), {f"{path}.lora_a": other[f"{path}.lora_a"]}, scale=1.0, first=1)
    with pytest.raises(ConfigError, match="no_such"):
        adapted_paths(dense(), ["q_proj", "no_such"])
    with pytest.raises(UnsupportedError, match="no module"):
        with_modules(dense(), {"model.layers.0.nothing": dense()})


def test_initial_weights_depend_on_the_key_alone_and_b_is_zero():
    one, two = adapter(dense(), zero=True), adapter(dense(), zero=True)
    assert all((np.array(one[name]) == np.array(two[name])).all() for name in one)
    assert all(not np.array(value).any() for name, value in one.items() if name.endswith("lora_b"))
    assert VOCABULARY == 96
    assert len(one) == 2 * 7 * 2
