"""DFlash: the network equals its reference, sees what it may see, and its drafts leave the answer as it is."""

import mlx.core as mx
import numpy as np
import pytest

from block_drafters import BLOCK, VOCABULARY, WINDOW, YARN, block, drafter, settings, taps
from draftledger.arrays import leaves
from draftledger.drafters.context_cache import ContextCache
from draftledger.drafters.layer_mask import FAMILIES, layer_masks
from draftledger.errors import ConfigError, UnsupportedError
from numpy_drafters import visible

CLOSE = {"rtol": 2e-4, "atol": 2e-5}


def logits_of(model, ids, heard, cache=None):
    return np.array(model(mx.array([ids]), heard[None], cache or model.make_cache())[0])


@pytest.mark.parametrize("kind", ["dflash", "dflash2"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_round_equals_a_whole_forward_of_the_reference(family, kind):
    config = settings(kind, family)
    model, reference = drafter(config)
    heard, cache, start = taps(40), model.make_cache(), 0
    for length in (3, 4, 1, 5, 9, 2):
        ids = block(config, anchor=length)
        found = logits_of(model, ids, heard[start : start + length], cache)
        start += length
        expected = reference.logits(reference.hidden(ids, heard[:start]))
        np.testing.assert_allclose(found, expected, **CLOSE)
    assert {layer.offset for layer in cache} == {start}
    assert {layer.rows for layer in cache} <= {start, WINDOW - 1}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_long_prompt_at_once_equals_the_reference(family):
    config = settings("dflash", family)
    model, reference = drafter(config)
    heard = taps(2 * WINDOW + 3)
    expected = reference.logits(reference.hidden(block(config), heard))
    np.testing.assert_allclose(logits_of(model, block(config), heard), expected, **CLOSE)


SCALES = {"input_embedding_scale": 1.7, "final_logit_softcapping": 2.0, "output_multiplier": 0.4}


@pytest.mark.parametrize("change", [*({name: value} for name, value in SCALES.items()), {"rope_scaling": YARN}])
def test_scales_cap_and_rope_equal_the_reference_and_matter(change):
    config, heard = settings("dflash", "full", **change), taps(12)
    model, reference = drafter(config)
    found = logits_of(model, block(config), heard)
    np.testing.assert_allclose(found, reference.logits(reference.hidden(block(config), heard)), **CLOSE)
    assert np.abs(found - logits_of(drafter(settings("dflash"))[0], block(config), heard)).max() > 1e-2


def reached(config, layer, row, context):
    """The keys that a row's output of a layer depends on, through the layers below it too."""
    keys = {key for key in range(context + BLOCK) if visible(config, layer, row, context, key)} | {context + row}
    below = {key - context for key in keys if key >= context} if layer else ()
    return keys.union(*(reached(config, layer - 1, other, context) for other in below))


@pytest.mark.parametrize("kind", ["dflash", "dflash2"])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_row_cannot_see_changes_no_bit_of_it_and_what_it_sees_does(family, kind):
    config, context = settings(kind, family, num_hidden_layers=2), 11
    model, _ = drafter(config)
    heard, ids = taps(context), block(config)

    def hidden(heard, ids):
        return np.array(model.hidden(mx.array([ids]), heard[None], model.make_cache())[0])

    before = hidden(heard, ids)
    for key in range(context + BLOCK):
        if key < context:
            after = hidden(heard.at[key].add(1.0), ids)
        else:
            after = hidden(heard, [*ids[: key - context], 50, *ids[key - context + 1 :]])
        for row in range(BLOCK):
            seen = key in reached(config, 1, row, context) or (kind == "dflash2" and key >= context)
            if kind == "dflash2" and key >= context and layer_masks(config)[0].causal and layer_masks(config)[1].causal:
                seen = key - context <= row  # the convolution looks back over the block as attention does
            assert (after[row] != before[row]).any() == seen, (key, row)


def test_no_row_outside_the_window_is_kept_and_the_offset_runs_on():
    cache, position = ContextCache(limit=6), 0
    for step in range(700):
        new = cache.fresh(9 if step == 3 else 2)
        count = 9 if step == 3 else 2
        keys = mx.arange(position + count - new, position + count + BLOCK, dtype=mx.float32).reshape(1, 1, -1, 1)
        seen, _ = cache.extend(keys, keys, block=BLOCK, skipped=count - new)
        position += count
        first = max(position - 6, 0)
        np.testing.assert_array_equal(np.array(seen).ravel(), np.arange(first, position + BLOCK))
        mx.eval(cache._keys, cache._values)
    assert (cache.offset, cache.rows) == (position, 6)
    assert cache._keys.shape[2] <= 600


def test_every_tensor_changes_the_logits():
    for kind in ("dflash", "dflash2"):
        config, heard = settings(kind, "hybrid"), taps(12)
        model, _ = drafter(config)
        before = logits_of(model, block(config), heard)
        for name, array in leaves(model.parameters()).items():
            if "candidate_selector" in name:
                continue
            model.load_weights([(name, array.at[0].multiply(2.0))], strict=False)  # a norm would undo a scale
            assert np.abs(logits_of(model, block(config), heard) - before).max() > 1e-5, name
            model.load_weights([(name, array)], strict=False)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"hidden_size": 0}, "hidden_size"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"block_size": 1}, "block_size"),
        ({"layer_types": ("full_attention",)}, "layer_types"),
        ({"layer_types": ("full_attention", "chunked_attention")}, "layer_types"),
        ({"layer_types": ("sliding_attention",) * 2, "sliding_window": None}, "sliding_window"),
        ({"layer_types": ("sliding_attention",) * 2, "sliding_window": 4}, "sliding_window"),
        ({"target_layer_ids": ()}, "target_layer_ids"),
        ({"target_layer_ids": (1, -1)}, "target_layer_ids"),
        ({"mask_token_id": VOCABULARY}, "mask_token_id"),
        ({"selector_rank": 4}, "DFlash 2"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_one_line(change, told):
    with pytest.raises(ConfigError, match=told) as caught:
        settings("dflash", **change)
    assert "\n" not in str(caught.value)


def test_causality_is_what_the_config_says_and_else_that_of_the_layer():
    assert [mask.causal for mask in layer_masks(settings("dflash", "hybrid"))] == [True, False]
    assert [mask.causal for mask in layer_masks(settings("dflash", "hybrid", is_causal=False))] == [False, False]
    assert [mask.causal for mask in layer_masks(settings("dflash", "full", is_causal=True))] == [True, True]


def test_a_drafter_without_a_target_is_told_so():
    model, _ = drafter(settings("dflash"))
    model.ends = None
    with pytest.raises(UnsupportedError, match="bind"):
        model(mx.array([block(model.config)]), taps(3)[None], model.make_cache())


def test_the_borrowed_ends_are_none_of_the_drafters_parameters():
    model, _ = drafter(settings("dflash"))
    names = set(leaves(model.parameters()))
    assert not {name for name in names if "embed" in name or "lm_head" in name}
