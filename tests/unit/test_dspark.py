"""DSpark: its layers' variants, the Markov walk, confidence and draft vocabularies equal their reference."""

import mlx.core as mx
import numpy as np
import pytest

from block_drafters import BLOCK, HIDDEN, VOCABULARY, YARN, block, drafter, settings, taps
from draftledger.decoding.sampling import Sampling, distribution
from draftledger.drafters.dspark import DSpark
from draftledger.errors import ConfigError

CLOSE = {"rtol": 2e-4, "atol": 2e-5}
ANCHOR = mx.array([11], dtype=mx.int32)
VARIANTS = {
    "plain": {},
    "its own ends": {"own": ("embed_tokens.weight", "lm_head.weight")},
    "gated query, partial rotary": {"gated_query": True, "partial_rotary_factor": 0.5},
    "sinks in a causal window": {"attention_sinks": True, "attention": "causal_sliding", "first_row": 1},
    "interleaved rope": {"rope_traditional": True},
    "yarn": {"rope_scaling": YARN},
    "gemma4": {
        "family": "gemma4",
        "own": ("embed_tokens.weight", "lm_head.weight"),
        "num_key_value_heads": 1,
        "partial_rotary_factor": 0.25,
        "final_logit_softcapping": 3.0,
    },
}


def made(variant: str, *, own=(), attention="full", **changes):
    options = {"own": own, "attention": attention, **VARIANTS.get(variant, {}), **changes}
    own = options.pop("own")
    return drafter(settings("dspark", **options), own=own)


def proposed(model, heard, **options):
    spark = DSpark(model, **options)
    spark.append_context([1], heard.reshape(len(heard), 2, -1))
    return spark.propose(ANCHOR, 0, step=0)


def expected(reference, heard):
    """Hidden rows, logits and the greedy path of a whole block, by the reference."""
    first = reference.config.first_row
    hidden = reference.hidden(block(reference.config), heard)[first:]
    logits = reference.logits(hidden)
    path, rows = reference.markov_path(hidden, logits, 11)
    return hidden, path, rows


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_of_layer_equals_the_reference(variant):
    model, reference = made(variant)
    heard, cache = taps(17), model.make_cache()
    model(mx.array([block(model.config)]), heard[None, :6], cache)
    found = np.array(model(mx.array([block(model.config)]), heard[None, 6:], cache)[0])
    hidden = reference.hidden(block(model.config), heard)
    np.testing.assert_allclose(found, reference.logits(hidden), **CLOSE)


@pytest.mark.parametrize("head", ["vanilla", "gated", "rnn"])
@pytest.mark.parametrize("first_row", [0, 1])
@pytest.mark.parametrize("drafted", [None, 40])
def test_the_walk_and_its_confidence_equal_the_reference(head, first_row, drafted):
    own = ("lm_head.weight",) if drafted else ()
    model, reference = made("", markov_head_type=head, first_row=first_row, draft_vocab_size=drafted, own=own)
    heard = taps(9)
    proposal = proposed(model, heard)
    hidden, path, _ = expected(reference, heard)
    assert proposal.tokens.tolist() == path
    assert len(path) == BLOCK - first_row
    assert proposal.q is None
    np.testing.assert_allclose(np.array(proposal.confidence), reference.confidence(hidden, [11, *path[:-1]]), **CLOSE)


@pytest.mark.parametrize("head", ["vanilla", "gated", "rnn"])
def test_the_previous_token_matters_and_later_ones_do_not(head):
    model, _ = made("", markov_head_type=head)
    heads, hidden = model.markov_head, mx.random.normal((3, HIDDEN), key=mx.random.key(3))

    def biases(tokens):
        state, rows = None, []
        for row, token in zip(hidden, tokens, strict=True):
            bias, state = heads.bias(mx.array([token]), row[None], state)
            rows.append(np.array(bias[0]))
        return rows

    before, after = biases([4, 5, 6]), biases([4, 5, 7])
    assert [bool((a != b).any()) for a, b in zip(before, after, strict=True)] == [False, False, True]
    before, after = biases([4, 5, 6]), biases([9, 5, 6])
    assert [bool((a != b).any()) for a, b in zip(before, after, strict=True)] == [True, head == "rnn", head == "rnn"]


@pytest.mark.parametrize("drafted", [None, 40])
def test_each_sampled_token_is_a_draw_from_the_q_that_is_told(drafted):
    own = ("lm_head.weight",) if drafted else ()
    model, reference = made("", markov_head_type="gated", draft_vocab_size=drafted, own=own)
    sampling, heard = Sampling(0.8, top_p=0.95, seed=4), taps(9)
    proposal = proposed(model, heard, sampling=sampling)
    hidden = reference.hidden(block(model.config), heard)
    ids = np.arange(VOCABULARY) if proposal.candidates is None else np.array(proposal.candidates[0])
    previous = 11
    for row, token, h in zip(np.array(proposal.q), proposal.tokens.tolist(), hidden, strict=True):
        _, logits = reference.markov_path(h[None], reference.logits(h[None]), previous)
        np.testing.assert_allclose(
            row, np.array(distribution(mx.array(logits.astype(np.float32)), sampling))[0], **CLOSE
        )
        assert row[ids == token].sum() > 0
        previous = token
    again = proposed(model, heard, sampling=sampling)
    assert again.tokens.tolist() == proposal.tokens.tolist()


def test_a_grid_of_uniforms_draws_each_token_as_often_as_q_says():
    model, _ = made("")
    spark, count = DSpark(model, sampling=Sampling(1.5)), 400
    hidden = mx.random.normal((2, HIDDEN), key=mx.random.key(3))
    drawn = [
        spark.choose(hidden, model.logits(hidden), ANCHOR, np.array([0.3, (i + 0.5) / count])) for i in range(count)
    ]
    assert len({int(proposal.tokens[0].item()) for proposal in drawn}) == 1
    counts = np.bincount([int(proposal.tokens[1].item()) for proposal in drawn], minlength=VOCABULARY)
    np.testing.assert_allclose(counts / count, np.array(drawn[0].q[1]), atol=1.5 / count)


def test_a_causal_block_may_be_cut_short_and_a_bidirectional_one_may_not():
    for attention, narrow in (("causal_sliding", True), ("full", False)):
        model, _ = made("", attention=attention)
        widths, embed = [], model.embed
        object.__setattr__(
            model, "embed", lambda ids, embed=embed, widths=widths: widths.append(ids.shape[1]) or embed(ids)
        )
        spark, heard = DSpark(model), taps(9).reshape(9, 2, -1)
        spark.append_context([1], heard)
        short = spark.propose(ANCHOR, 2, step=0).tokens.tolist()
        whole = DSpark(model)
        whole.append_context([1], heard)
        assert short == whole.propose(ANCHOR, 0, step=0).tokens.tolist()[:2]
        assert widths == ([2, BLOCK] if narrow else [BLOCK, BLOCK])


def test_a_threshold_cuts_where_the_chance_of_all_falls_below_it_and_keeps_one():
    model, _ = made("")
    heard = taps(9)
    whole = proposed(model, heard)
    chance = np.cumprod(np.array(whole.confidence))
    for count in range(1, BLOCK + 1):
        between = chance[count - 1] - 1e-6
        cut = proposed(model, heard, threshold=float(between))
        assert cut.tokens.tolist() == whole.tokens.tolist()[:count]
    assert proposed(model, heard, threshold=0.999).tokens.size == 1
    sampled = proposed(model, heard, sampling=Sampling(1.0), threshold=0.999)
    assert sampled.q.shape[0] == sampled.tokens.size == sampled.confidence.size == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"first_row": 2}, "first_row"),
        ({"markov_head_type": "lstm"}, "markov_head_type"),
        ({"markov_rank": 0}, "confidence_head_with_markov"),
        ({"partial_rotary_factor": 0.0}, "partial_rotary_factor"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_one_line(change, told):
    with pytest.raises(ConfigError, match=told):
        settings("dspark", **change)
