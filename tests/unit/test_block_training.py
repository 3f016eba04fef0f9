"""Training of DFlash and DSpark: the rows of training are those of decoding, blocks keep apart, and it learns."""

from dataclasses import replace
from functools import cache

import mlx.core as mx
import numpy as np
import pytest

from block_drafters import HEADS
from draftledger.decoding.loop import Limits, decode
from draftledger.drafters import dflash, dspark
from draftledger.drafters.base import DraftContext
from draftledger.drafters.block_adapter import assembled, load
from draftledger.errors import ConfigError
from draftledger.models.state import TargetState
from draftledger.models.taps import Tapped
from draftledger.training import dflash as dflash_training
from draftledger.training import dspark as dspark_training
from draftledger.training.anchored import Blocks, hidden_rows
from draftledger.training.data import Windows
from draftledger.training.losses import position_weights
from draftledger.training.trainer import Schedule, train
from targets import VOCABULARY, dense, greedy, hybrid, prompt
from teachers import windows

BLOCK, LENGTH = 5, 24
SHAPE = {"layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "inner": 48, "block": BLOCK, "taps": 2, "mask_id": 3}
KINDS = {
    "dflash": (dflash_training, dflash, {}, {"ce": 0.5, "kl": 0.5}),
    "dspark": (dspark_training, dspark, HEADS, {"ce": 0.1, "tv": 1.8, "confidence": 1.0}),
}
MASKS = {
    "full": {"attention": "full"},
    "hybrid": {"attention": "hybrid", "window": 7},
    "sliding": {"attention": "sliding", "window": 7},
    "causal_sliding": {"attention": "causal_sliding", "window": 7},
}
TRAINING = {"anchors": 6, "batch": 2, "teacher": "true_teacher", "live": True, "gamma": 4.0}


def objective(kind="dflash", *, model=None, data=None, mask="full", seed=1, shape=None, **changes):
    trainer, _, extra, loss = KINDS[kind]
    model = model or dense()
    data = data or windows(model, length=LENGTH, k=VOCABULARY)
    spec = {"kind": kind, "shape": {**SHAPE, **extra, **MASKS[mask], **(shape or {})}, "loss": loss, **TRAINING}
    return trainer.build(model, windows={"train": data, "validation": data}, spec=spec | changes, seed=seed)


def loud(goal, *, spread=0.3):
    """Weights of which every tensor speaks."""
    weights = goal.initial()
    keys = mx.random.split(mx.random.key(2), len(weights))
    return {
        name: weights[name] + spread * mx.random.normal(weights[name].shape, key=key)
        for name, key in zip(sorted(weights), keys, strict=True)
    }


def served(goal, weights, ids: np.ndarray, anchor: int) -> np.ndarray:
    """The drafter's final hidden rows at an anchor as decoding forms them: the context heard in two parts."""
    drafter = assembled(goal.config, weights, target=goal.model)
    _, heard = Tapped(goal.model, goal.config.target_layer_ids).windows(mx.array(ids[None]))
    heard = heard.reshape(1, len(ids), -1)
    row = mx.array([[int(ids[anchor]), *[3] * (BLOCK - 1)]])
    cut = anchor // 2
    store = drafter.make_cache()
    drafter.hidden(row, heard[:, :cut], store)
    return np.array(drafter.hidden(row, heard[:, cut:anchor], store, start=goal.config.first_predicting)[0])


def rows_of(goal, weights, batch) -> np.ndarray:
    """The training pass's hidden rows [W, M, n, H] under weights."""
    goal.measure(weights, batch)  # puts them in place
    found = hidden_rows(goal.student, batch.inputs, batch.features, batch.blocks)
    return np.array(found).reshape(*batch.blocks.anchors.shape, *found.shape[1:])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("target", [dense, hybrid])
def test_a_row_in_training_is_the_row_in_decoding(kind, mask, target):
    goal = objective(kind, model=target(), mask=mask)
    weights, batch = loud(goal), goal.validation()[0]
    found, anchors = rows_of(goal, weights, batch), np.array(batch.blocks.anchors)
    for window, place in ((0, 0), (0, 5), (1, 3)):
        ids = goal.splits["validation"].tokens[window]
        expected = served(goal, weights, ids, int(anchors[window, place]))
        np.testing.assert_allclose(found[window, place], expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("mask", MASKS)
def test_overlapping_blocks_do_not_see_each_other(mask):
    goal = objective(mask=mask)
    weights, batch = loud(goal), goal.validation()[0]
    close = replace(batch, blocks=replace(batch.blocks, anchors=mx.array([[5, 6, 6, 7, 9, 18]] * 2)))
    before = rows_of(goal, weights, close)
    other = np.array(batch.inputs).reshape(2, 6, BLOCK)
    other[:, 2] = (other[:, 2] + 7) % VOCABULARY
    after = rows_of(goal, weights, replace(close, inputs=mx.array(other.reshape(-1, BLOCK))))
    untouched = [0, 1, 3, 4, 5]
    assert (before[:, untouched] == after[:, untouched]).all()
    assert (before[:, 2] != after[:, 2]).any(axis=(-1, -2)).all()


@pytest.mark.parametrize("mask", MASKS)
def test_a_row_sees_exactly_the_context_that_its_mask_allows(mask):
    goal = objective(mask=mask)
    blocks = Blocks(mx.array([[3, 12]]), rows=BLOCK, length=LENGTH)
    window = MASKS[mask].get("window")
    for layer in goal.student.masks:
        seen = np.array(blocks.mask(layer))[0, 0]
        for q in range(2 * BLOCK):
            block, row = divmod(q, BLOCK)
            anchor = (3, 12)[block]
            reach = layer.window is not None and window
            for j in range(LENGTH):
                assert seen[q, j] == (j < anchor and (not reach or anchor + row - j < window))
            for k in range(2 * BLOCK):
                assert seen[q, LENGTH + k] == (k // BLOCK == block and (not layer.causal or k % BLOCK <= row))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first_row", [0, 1])
def test_labels_are_the_text_after_the_anchor_and_the_teacher_stands_one_before(kind, first_row):
    if kind == "dflash" and not first_row:
        pytest.skip("DFlash never reads the anchor's own row")
    goal = objective(kind)
    goal.config = replace(goal.config, **({"first_row": first_row} if kind == "dspark" else {}))
    batch, slots = goal.validation()[0], BLOCK - goal.config.first_predicting
    tokens = goal.splits["validation"].tokens[:2]
    logits = np.array(dense()(mx.array(tokens)))
    anchors = np.array(batch.blocks.anchors)
    for slot in range(slots):
        rolled = np.roll(tokens, -(slot + 1), axis=1)
        label = np.take_along_axis(rolled, anchors, axis=1)
        said = np.take_along_axis(np.roll(logits.argmax(-1), -slot, axis=1), anchors, axis=1)
        assert (np.array(batch.labels)[:, slot].reshape(2, -1) == label).all()
        assert (np.array(batch.rows.best)[:, slot].reshape(2, -1) == said).all()
        before = np.take_along_axis(np.roll(tokens, -slot, axis=1), anchors, axis=1)
        assert (np.array(batch.before)[:, slot].reshape(2, -1) == before).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changes", [{}, {"gamma": None, "pace": 0.5}])
def test_in_chunks_value_and_gradient_are_those_of_one_piece(kind, changes):
    found = []
    for chunk in (10_000, 2 * BLOCK):
        goal = objective(kind, chunk=chunk, **changes)
        weights, batch = loud(goal), goal.batch(0)
        found.append(mx.value_and_grad(lambda w, g=goal, b=batch: g.measure(w, b).loss)(weights))
    (whole, slopes), (parts, others) = found
    assert parts.item() == pytest.approx(whole.item(), rel=1e-5)
    for name, slope in slopes.items():
        np.testing.assert_allclose(np.array(others[name]), np.array(slope), rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", ["vanilla", "gated", "rnn"])
def test_the_gradient_is_that_of_finite_differences(kind, head):
    if kind == "dflash" and head != "vanilla":
        pytest.skip("DFlash has no such head")
    goal = objective(kind, shape={"markov_head_type": head} if kind == "dspark" else {})
    weights, batch = loud(goal, spread=0.1), goal.batch(0)

    def loss(w):
        return goal.measure(w, batch).loss

    slopes = mx.grad(loss)(weights)
    for name in weights:
        way = mx.random.normal(weights[name].shape, key=mx.random.key(4))
        way = way / mx.linalg.norm(way.reshape(-1))
        sides = [loss(weights | {name: weights[name] + step * way}).item() for step in (-0.02, 0.02)]
        assert (slopes[name] * way).sum().item() == pytest.approx((sides[1] - sides[0]) / 0.04, rel=0.05, abs=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_stored_teaches_what_the_live_target_does(kind):
    found = []
    for live in (True, False):
        goal = objective(kind, live=live, anchors=7)
        found.append(goal.measure(loud(goal), goal.batch(3)))
    live, stored = found
    assert stored.loss.item() == pytest.approx(live.loss.item(), rel=1e-4)
    assert stored.agreement.item() == live.agreement.item()
    assert stored.accepted.item() == live.accepted.item()


def test_without_stored_rows_the_fault_is_told():
    data = replace(windows(dense(), length=LENGTH), teacher=None)
    with pytest.raises(ConfigError, match="no teacher was stored"):
        objective(data=data, live=False).batch(0)


def test_slots_weigh_less_the_later_they_are():
    np.testing.assert_allclose(np.array(position_weights(4, 2.0)), np.exp([0, -0.5, -1, -1.5]), rtol=1e-6)
    assert position_weights(3, None).tolist() == [1, 1, 1]


@pytest.mark.parametrize("live", [True, False])
def test_a_shuffled_teacher_gives_no_block_its_own_rows_or_labels(live):
    true, shuffled = (objective(teacher=kind, live=live) for kind in ("true_teacher", "shuffled"))
    for step in range(3):
        own, other = true.batch(step), shuffled.batch(step)
        assert (np.array(own.inputs) == np.array(other.inputs)).all()
        assert (np.array(own.labels) != np.array(other.labels)).mean() > 0.9
        assert (np.array(own.rows.best) != np.array(other.rows.best)).mean() > 0.9
    pairs = zip(true.validation(), shuffled.validation(), strict=True)
    assert all((np.array(a.labels) == np.array(b.labels)).all() for a, b in pairs)


def test_blocks_are_short_in_an_early_stage_and_whole_in_validation():
    goal = objective(stages=[{"until": 2, "block": 3}])
    assert [goal.batch(step).inputs.shape[1] for step in (0, 1, 2)] == [3, 3, BLOCK]
    assert goal.validation()[0].inputs.shape[1] == BLOCK


def test_anchors_are_drawn_anew_each_epoch_and_leave_room():
    goal = objective()
    drawn = [np.array(goal.batch(step).blocks.anchors) for step in range(40)]
    assert len({array.tobytes() for array in drawn}) > 35
    assert min(array.min() for array in drawn) == 1
    assert max(array.max() for array in drawn) == LENGTH - BLOCK
    assert all((np.diff(array, axis=1) > 0).all() for array in drawn)


@pytest.mark.parametrize("kind", KINDS)
def test_it_resumes_to_the_bit_and_keeps_apart_from_evaluation(kind, tmp_path):
    plan = Schedule(steps=4, learning_rate=1e-2, warmup=1, clip=1.0, validate_every=9, checkpoint_every=2, cosine=True)
    goal = objective(kind)
    for name in ("whole", "split", "often"):
        (tmp_path / name).mkdir()
    whole, _ = train(goal, goal.initial(), schedule=plan, partial=tmp_path / "whole")
    dying = objective(kind)
    dying.batch = lambda step: goal.batch(step) if step < 3 else (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        train(dying, dying.initial(), schedule=plan, partial=tmp_path / "split")
    resumed, _ = train(goal, goal.initial(), schedule=plan, partial=tmp_path / "split")
    assert all((np.array(whole[name]) == np.array(resumed[name])).all() for name in whole)
    often, _ = train(goal, goal.initial(), schedule=replace(plan, validate_every=1), partial=tmp_path / "often")
    assert all((np.array(whole[name]) == np.array(often[name])).all() for name in whole)


def test_two_small_batches_make_the_step_of_one_large(tmp_path):
    found = []
    for name, batch, accumulate in (("one", 4, 1), ("two", 2, 2)):
        (tmp_path / name).mkdir()
        plan = Schedule(1, 1e-2, 0, 1.0, 1, 9, accumulate=accumulate)
        goal = objective(batch=batch, anchors=LENGTH - BLOCK)  # every anchor, so that no draw differs
        found.append(train(goal, goal.initial(), schedule=plan, partial=tmp_path / name)[1][0])
    assert found[0]["loss"] == pytest.approx(found[1]["loss"], rel=1e-5)
    assert found[0]["gradient_norm"] == pytest.approx(found[1]["gradient_norm"], rel=1e-4)


@cache
def spoken() -> tuple[list[int], list[int]]:
    """A prompt and the target's own answer to it, which does not repeat itself."""
    ids = prompt(9)
    answer = greedy(dense(), ids, 40)
    assert len(set(answer)) > 12
    return ids.tolist(), answer


@pytest.mark.parametrize("kind", KINDS)
def test_one_sequence_learnt_by_heart_is_drafted_block_by_block(kind, tmp_path):
    """Trained, saved, loaded and decoded: tokens per round come to the whole block."""
    ids, answer = spoken()
    text = np.array([[*ids, *answer]], dtype=np.int32)
    goal = objective(kind, data=Windows(text, None), batch=1, anchors=40, loss={"ce": 1.0})
    plan = Schedule(240, 1e-2, 10, 1.0, 240, 999, cosine=True)
    weights, history = train(goal, goal.initial(), schedule=plan, partial=tmp_path)
    slots = BLOCK - goal.config.first_predicting
    assert history[0]["accepted"] < 0.5 < 3 < history[-1]["accepted"]  # the prompt's places are not the target's words
    goal.save(weights, tmp_path / "adapter.safetensors")
    drafter = load({"kind": kind}, tmp_path / "adapter.safetensors", model=goal.model)
    state = TargetState(goal.model, taps=drafter.taps)
    context = DraftContext({"kind": kind, "k": 0}, state, tuple(ids), 1, adapter=drafter)
    rounds = list(
        decode(state, KINDS[kind][1].build(context), mx.array(ids), k=0, limits=Limits(len(answer), frozenset()))
    )
    assert [token for each in rounds for token in each.committed] == answer
    fewest = -(-(len(answer) - 1) // (slots + 1))  # the prefill, round -1, says the first token
    assert len(rounds) - 1 <= fewest + 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changes", [{}, {"gamma": None, "pace": 0.5}])
def test_slots_outside_the_answer_teach_nothing(kind, changes):
    """Other padding changes nothing; told that it is text, it does."""
    text = windows(dense(), length=LENGTH, k=VOCABULARY).tokens
    padded = np.concatenate([text[:, :15], np.roll(text[:, 15:], 1, axis=1) % VOCABULARY], axis=1)
    span = {"first": np.full(4, 6, np.int32), "valid": np.full(4, 15, np.int32)}

    def measured(tokens, **span):
        goal = objective(kind, data=Windows(tokens, None, **span), anchors=8, **changes)
        batch = goal.batch(0)
        found = goal.measure(loud(goal), batch)
        return batch, [float(value) for value in (found.loss, found.agreement, found.accepted)]

    batch, own = measured(text, **span)
    assert measured(padded, **span)[1] == pytest.approx(own, rel=1e-6)
    assert measured(padded)[1] != pytest.approx(measured(text)[1], rel=1e-4)
    anchors = np.array(batch.blocks.anchors)
    assert anchors.min() >= 5  # the prompt's last token
    assert anchors.max() <= 13
    slots = batch.taught.shape[1]
    assert (np.array(batch.taught) == ((anchors.reshape(-1, 1) + 1 + np.arange(slots)) < 15)).all()


def test_an_answer_with_few_tokens_still_fills_a_step():
    text = windows(dense(), length=LENGTH, k=VOCABULARY).tokens
    span = {"first": np.full(4, 9, np.int32), "valid": np.full(4, 12, np.int32)}
    batch = objective(data=Windows(text, None, **span), anchors=8).batch(0)
    anchors, taught = np.array(batch.blocks.anchors), np.array(batch.taught)
    assert all({8, 9, 10} <= set(row) for row in anchors.tolist())
    places = anchors.reshape(-1, 1) + 1 + np.arange(taught.shape[1])
    assert (taught == ((places >= 9) & (places < 12))).all()
