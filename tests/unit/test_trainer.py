"""The training loop: keyed, resumable to the bit, guarded, and blind to when it is evaluated."""

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from draftledger.errors import ConfigError
from draftledger.training.block_lora import BlockLoraObjective, build
from draftledger.training.checkpoints import load_checkpoint
from draftledger.training.trainer import HISTORY, Measured, Schedule, TrainingError, train
from targets import VOCABULARY, dense, hybrid
from teachers import MODULES, windows

SCHEDULE = Schedule(steps=7, learning_rate=1e-2, warmup=3, clip=1.0, validate_every=3, checkpoint_every=2)
SPEC = {
    "k": 2,
    "anchors": 2,
    "batch": 2,
    "loss": "kl",
    "scale": 4.0,
    "rank": 2,
    "modules": MODULES,
    "noise_bound": VOCABULARY,
    "teacher": "true_teacher",
}


def objective(model=None, *, seed: int = 1, count: int = 4, **changes) -> BlockLoraObjective:
    model = model or dense()
    splits = {"train": windows(model, count=count), "validation": windows(model, count=count, key=9)}
    return build(model, windows=splits, spec=SPEC | changes, seed=seed)


def run(goal, folder, schedule=SCHEDULE):
    folder.mkdir(exist_ok=True)
    return train(goal, goal.initial(), schedule=schedule, partial=folder)


def same(one: dict, two: dict) -> bool:
    return one.keys() == two.keys() and all((np.array(one[name]) == np.array(two[name])).all() for name in one)


class KilledError(Exception):
    """What a kill looks like from inside."""


class Dying:
    """An objective that dies when it is asked for the batch of a step."""

    def __init__(self, inner, step: int) -> None:
        self.inner, self.step = inner, step
        self.initial, self.validation, self.measure = inner.initial, inner.validation, inner.measure

    def batch(self, step: int):
        if step == self.step:
            raise KilledError
        return self.inner.batch(step)


class Scripted:
    """Loss = w² plus a scripted term a step; peaks as given."""

    def __init__(self, terms: dict[int, float] | None = None, *, start: float = 1.0, peak: float = 0.0) -> None:
        self.terms, self.start, self.peak = terms or {}, start, peak

    def initial(self):
        return {"w": mx.array([self.start])}

    def batch(self, step: int):
        return self.terms.get(step, 0.0)

    def validation(self):
        return [0.0]

    def measure(self, weights, batch):
        loss = (weights["w"] ** 2).sum() + batch
        return Measured(loss, mx.array(0.5), mx.array(self.peak), mx.array(1.0))


@pytest.mark.parametrize("target", [dense, hybrid])
@pytest.mark.parametrize("death", [1, 3, 5, 6])
def test_a_killed_and_resumed_run_equals_an_unbroken_one_to_the_bit(target, death, tmp_path):
    goal = objective(target())
    weights, history = run(goal, tmp_path / "whole")
    with pytest.raises(KilledError):
        run(Dying(goal, death), tmp_path / "split")
    resumed, told = run(goal, tmp_path / "split")
    assert same(weights, resumed)
    assert history == told
    left = [load_checkpoint(tmp_path / name) for name in ("whole", "split")]
    assert left[0].step == left[1].step == 6
    assert same(left[0].optimiser, left[1].optimiser)


def test_the_optimiser_remembers_across_a_resume(tmp_path):
    run(Scripted(), tmp_path, replace(SCHEDULE, steps=5))
    found = load_checkpoint(tmp_path)
    assert int(found.optimiser["step"].item()) == found.step == 4
    assert float(found.optimiser["w.m"].item()) != 0


def test_evaluation_takes_no_training_randomness(tmp_path):
    goal = objective()
    often, _ = run(goal, tmp_path / "often", replace(SCHEDULE, validate_every=1))
    never, history = run(goal, tmp_path / "never", replace(SCHEDULE, validate_every=100))
    assert same(often, never)
    assert [row["split"] for row in history] == ["train"] * SCHEDULE.steps + ["validation"]


def test_the_global_generator_is_neither_read_nor_needed(tmp_path):
    made = []
    for state in (1, 2):
        mx.random.seed(state)
        np.random.seed(state)
        made.append(run(objective(), tmp_path / str(state))[0])
    assert same(*made)


def test_seeds_differ_and_a_seed_repeats(tmp_path):
    one, again, other = (run(objective(seed=seed), tmp_path / str(place))[0] for place, seed in enumerate((1, 1, 2)))
    assert same(one, again)
    assert not same(one, other)


def test_validation_shows_every_window_once_and_is_the_same_for_all_seeds():
    goal, other = objective(count=3), objective(count=3, seed=2)
    losses = [[g.measure(goal.initial(), b).loss.item() for b in g.validation()] for g in (goal, other, goal)]
    assert len(losses[0]) == 3
    assert losses[0] == losses[1] == losses[2]
    assert len({batch.noise.shape for batch in goal.validation()}) == 1


def test_an_epoch_draws_each_window_once():
    goal = objective(count=6, batch=3, anchors=1)
    firsts = []
    for step in range(2):
        keys = np.array(goal.batch(step).caches[0].keys)[:, 0, 0]  # the first clean token names its window
        firsts += [tuple(key.tolist()) for key in keys]
    assert len(set(firsts)) == 6


@pytest.mark.parametrize("target", [dense, hybrid])
def test_only_the_adapter_changes_and_all_of_it_can(target, tmp_path):
    goal = objective(target())
    before = {name: np.array(value) for name, value in tree_flatten(goal.model.parameters())}
    first = goal.initial()
    weights, _ = run(goal, tmp_path)
    after = dict(tree_flatten(goal.model.parameters()))
    assert same(before, after)
    assert weights.keys() == first.keys()
    assert all((np.array(weights[name]) != np.array(first[name])).any() for name in first)
    assert {value.dtype for value in weights.values()} == {mx.float32}


def test_overfitting_one_window_lowers_the_loss_and_raises_agreement(tmp_path):
    goal = objective(count=1, batch=1, anchors=4, rank=16, noise_bound=2)  # one placeholder: nothing to ignore
    schedule = Schedule(steps=150, learning_rate=1e-2, warmup=5, clip=1.0, validate_every=150, checkpoint_every=1000)
    _, history = run(goal, tmp_path, schedule)
    rows = [row for row in history if row["split"] == "train"]
    early, late = (
        {name: np.mean([row[name] for row in part]) for name in ("loss", "agreement")}
        for part in (rows[:10], rows[-10:])
    )
    assert late["loss"] < 0.5 * early["loss"]
    assert late["agreement"] > early["agreement"] + 0.3


def test_the_rate_warms_up_and_history_has_its_schema(tmp_path):
    _, history = run(Scripted(), tmp_path)
    rates = [row["learning_rate"] for row in history if row["split"] == "train"]
    np.testing.assert_allclose(rates, [1e-2 / 3, 2e-2 / 3, *[1e-2] * 5])
    assert all(set(row) == set(HISTORY.names) for row in history)
    assert [row["step"] for row in history if row["split"] == "validation"] == [3, 6, 7]


@pytest.mark.parametrize("term", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_training_and_leaves_a_usable_checkpoint(term, tmp_path):
    with pytest.raises(TrainingError, match=r"step 6.*lower learning_rate"):
        run(Scripted({5: term}), tmp_path)
    found = load_checkpoint(tmp_path)
    assert found.step == 4
    assert np.isfinite(np.array(found.weights["w"])).all()
    assert same(run(Scripted(), tmp_path)[0], run(Scripted(), tmp_path / "whole")[0])


class Rooted(Scripted):
    """Its loss is finite at zero, its gradient is not."""

    def measure(self, weights, batch):
        return Measured(mx.sqrt(weights["w"]).sum(), mx.array(0.5), mx.array(0.0), mx.array(1.0))


def test_a_gradient_that_is_no_number_stops_training_even_on_the_last_step(tmp_path):
    with pytest.raises(TrainingError, match="gradient norm"):
        run(Rooted(start=0.0), tmp_path, replace(SCHEDULE, steps=1))


def test_a_saturated_student_stops_training(tmp_path):
    with pytest.raises(TrainingError, match="saturated at step 5"):
        run(Scripted(start=1e-5, peak=3.0), tmp_path, replace(SCHEDULE, learning_rate=1e-9))
    run(Scripted(start=1e-5, peak=1.9), tmp_path / "quiet", replace(SCHEDULE, learning_rate=1e-9))
    run(Scripted(start=1.0, peak=3.0), tmp_path / "moving")


def test_the_clip_bounds_the_step_and_history_tells_the_unclipped_norm(tmp_path):
    _, history = run(Scripted(start=50.0), tmp_path)
    assert history[0]["gradient_norm"] == pytest.approx(100.0)


def test_what_a_kill_cut_short_is_ignored_and_only_two_checkpoints_stay(tmp_path):
    whole, _ = run(Scripted(), tmp_path / "whole")
    with pytest.raises(KilledError):
        run(Dying(Scripted(), 6), tmp_path / "split")
    held = sorted(path.name for path in (tmp_path / "split").iterdir())
    assert held == ["step-0000004.safetensors", "step-0000006.safetensors"]
    last = tmp_path / "split" / held[-1]
    (tmp_path / "split" / ".4242.safetensors").write_bytes(last.read_bytes()[:40])
    last.unlink()
    assert load_checkpoint(tmp_path / "split").step == 4
    assert same(whole, run(Scripted(), tmp_path / "split")[0])
    (tmp_path / "empty").mkdir()
    assert load_checkpoint(tmp_path / "empty") is None


def test_the_shuffled_teacher_gives_no_block_its_own_rows_and_renames_ids():
    true, shuffled = objective(anchors=3), objective(anchors=3, teacher="shuffled")
    for step in range(8):
        own, other = true.batch(step), shuffled.batch(step)
        assert (np.array(own.noise) == np.array(other.noise)).all()
        mine, theirs = (np.array(b.rows.log_p).reshape(6, 2, -1) for b in (own, other))
        assert not any((a == b).all() for a, b in zip(mine, theirs, strict=True))
        assert sorted(map(str, mine)) == sorted(map(str, theirs))  # the same rows, each with another block
        assert (np.array(own.rows.ids) != np.array(other.rows.ids)).mean() > 0.9
        assert all(len(set(row)) == len(row) for block in np.array(other.rows.ids).tolist() for row in block)
    renamed = [np.array(shuffled.batch(step).rows.ids) for step in (0, 0, 1)]
    assert (renamed[0] == renamed[1]).all()
    assert (renamed[0] != renamed[2]).any()


def test_the_shuffled_teacher_leaves_validation_true():
    pairs = zip(objective().validation(), objective(teacher="shuffled").validation(), strict=True)
    assert all((np.array(a.rows.ids) == np.array(b.rows.ids)).all() for a, b in pairs)


def test_one_block_cannot_be_shuffled():
    with pytest.raises(ConfigError, match="two blocks"):
        objective(batch=1, anchors=1, teacher="shuffled").batch(0)
