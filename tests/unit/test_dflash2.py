"""DFlash 2: the selector's walk equals its reference, and its sparse q is what the tokens were drawn from."""

import mlx.core as mx
import numpy as np
import pytest

from block_drafters import BLOCK, DFLASH2, HIDDEN, VOCABULARY, block, drafter, settings, taps
from draftledger.arrays import leaves
from draftledger.decoding.sampling import Sampling
from draftledger.drafters.dflash2 import DFlash2
from draftledger.drafters.dynamic_convolution import DynamicConvolution

CLOSE = {"rtol": 2e-4, "atol": 2e-5}
ANCHOR = mx.array([11], dtype=mx.int32)


def proposed(model, heard, k=0, step=0, **options):
    flash = DFlash2(model, **options)
    flash.append_context([1], heard.reshape(len(heard), 2, -1))
    return flash.propose(ANCHOR, k, step=step)


def slots(reference, heard, path):
    """Each slot's scores by candidate, with the given tokens as predecessors."""
    hidden = reference.hidden(block(reference.config), heard)[1:]
    found = []
    for previous, h in zip([11, *path[:-1]], hidden, strict=False):
        found += reference.selector_path(h[None], reference.logits(h[None]), previous)[1]
    return found


@pytest.mark.parametrize("change", [{}, {"final_logit_softcapping": 1.5, "output_multiplier": 0.7}])
def test_the_greedy_walk_equals_the_reference(change):
    model, reference = drafter(settings("dflash2", "sliding", **change))
    for rows in (3, 13):
        heard = taps(rows, key=rows)
        hidden = reference.hidden(block(model.config), heard)[1:]
        path, _ = reference.selector_path(hidden, reference.logits(hidden), 11)
        proposal = proposed(model, heard)
        assert proposal.tokens.tolist() == path
        assert proposal.q is None
        assert proposed(model, heard, k=2).tokens.tolist() == path[:2]


def test_the_sampled_walk_draws_from_the_sparse_q_that_it_tells():
    model, reference = drafter(settings("dflash2", "sliding"))
    heard, sampling = taps(9), Sampling(0.7, top_p=0.5, top_k=2, seed=3)
    for step in range(3):
        proposal = proposed(model, heard, step=step, sampling=sampling)
        path = proposal.tokens.tolist()
        assert proposal.q.shape == proposal.candidates.shape == (BLOCK - 1, DFLASH2["selector_top_k"])
        for row, ids, scores, token in zip(
            np.array(proposal.q), proposal.candidates.tolist(), slots(reference, heard, path), path, strict=True
        ):
            weights = np.array([scores[token] for token in ids]) / 0.7  # no filter acts on the drafter's side
            weights = np.exp(weights - weights.max())
            np.testing.assert_allclose(row, weights / weights.sum(), **CLOSE)
            assert set(ids) == set(scores)
            assert token in ids
    cold = proposed(model, heard, sampling=Sampling(1e-4))
    assert cold.tokens.tolist() == proposed(model, heard).tokens.tolist()


def test_a_grid_of_uniforms_draws_each_candidate_as_often_as_q_says():
    model, _ = drafter(settings("dflash2"))
    flash, count = DFlash2(model, sampling=Sampling(2.0)), 300
    hidden = mx.random.normal((2, HIDDEN), key=mx.random.key(3))
    logits = model.logits(hidden)
    drawn = [flash.choose(hidden, logits, ANCHOR, np.array([0.4, (i + 0.5) / count])) for i in range(count)]
    counts = np.bincount([int(path.tokens[1].item()) for path in drawn], minlength=VOCABULARY)
    expected = np.zeros(VOCABULARY)
    expected[np.array(drawn[0].candidates[1])] = np.array(drawn[0].q[1])
    np.testing.assert_allclose(counts / count, expected, atol=1.5 / count)


def test_the_selectors_every_tensor_and_the_anchor_matter():
    model, _ = drafter(settings("dflash2"))
    hidden = mx.random.normal((3, HIDDEN), key=mx.random.key(3))
    selector, logits = model.candidate_selector, model.logits(hidden)

    def scores(anchor=ANCHOR):
        return np.array(selector.scores(hidden, logits, anchor)[1])

    before = scores()
    for name, array in leaves(selector.parameters()).items():
        selector.load_weights([(name, array * 1.5)], strict=False)
        assert np.abs(scores() - before).max() > 1e-4, name
        selector.load_weights([(name, array)], strict=False)
    moved = scores(mx.array([12], dtype=mx.int32)) != before
    assert moved[0].any()
    assert not moved[1:].any()


def test_a_convolution_that_begins_as_the_identity_changes_nothing():
    convolution = DynamicConvolution(HIDDEN, size=2, group=8)
    convolution.base_kernel = convolution.base_kernel.at[:, 0].add(1)
    convolution.kernel_projection.weight = mx.zeros_like(convolution.kernel_projection.weight)
    rows = mx.random.normal((1, 4, HIDDEN), key=mx.random.key(1))
    for side in (0, 1):
        assert mx.array_equal(convolution.filtered(rows, convolution.kernels(rows)[:, :, side]), rows)


def test_the_first_row_hears_no_row_before_it():
    convolution = DynamicConvolution(HIDDEN, size=3, group=8)
    convolution.base_kernel = mx.random.normal((2, 3, HIDDEN), key=mx.random.key(2))
    rows = mx.random.normal((1, 4, HIDDEN), key=mx.random.key(1))
    kernels = convolution.kernels(rows)[:, :, 0]
    np.testing.assert_allclose(
        np.array(convolution.filtered(rows, kernels)[0, 0]),
        np.array((kernels[:, :, 0].reshape(rows.shape) * rows)[0, 0]),
        rtol=1e-6,
    )
