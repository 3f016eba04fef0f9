"""The training loop of every drafter kind: keyed batches, clipping, warm-up, guards, resumable checkpoints."""

from dataclasses import dataclass
from math import cos, isfinite, pi
from pathlib import Path
from typing import Any, Protocol

import mlx.core as mx
import mlx.optimizers as optim
import pyarrow as pa
from mlx.utils import tree_map_with_path
from tqdm import tqdm

from draftledger.arrays import number
from draftledger.errors import DraftledgerError
from draftledger.training.checkpoints import load_checkpoint, save_checkpoint

Weights = dict[str, mx.array]

HISTORY = pa.schema(
    [
        ("step", pa.int32()),
        ("split", pa.string()),
        ("loss", pa.float64()),
        ("agreement", pa.float64()),
        ("gradient_norm", pa.float64()),
        ("learning_rate", pa.float64()),
        ("accepted", pa.float64()),
    ]
)


class TrainingError(DraftledgerError):
    """Training cannot go on: a loss that is not finite, or a saturated student."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long and how fast: steps, peak learning rate after `warmup` steps, gradient-norm clip, and cadences.

    With `cosine` the rate then falls to zero along half a cosine. A step sums the gradients of `accumulate` batches.
    """

    steps: int
    learning_rate: float
    warmup: int
    clip: float
    validate_every: int
    checkpoint_every: int
    cosine: bool = False
    accumulate: int = 1

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, from 0."""
        warm = min(1.0, (step + 1) / max(1, self.warmup))
        left = max(0, step - self.warmup) / max(1, self.steps - self.warmup)
        return self.learning_rate * warm * (0.5 + 0.5 * cos(pi * left) if self.cosine else 1.0)


@dataclass(frozen=True, slots=True)
class Measured:
    """A batch's scalars: loss, share of rows that agree with the teacher, and the largest logits of both.

    `accepted` is how many slots a block agrees with the teacher before the first that does not, where slots have an
    order; null where they have none.
    """

    loss: mx.array
    agreement: mx.array
    student_peak: mx.array
    teacher_peak: mx.array
    accepted: mx.array | None = None


class Objective(Protocol):
    """What a drafter kind brings to the loop."""

    def batch(self, step: int) -> Any:
        """Return the training batch of a number: a function of (seed, number) alone."""
        ...

    def validation(self) -> list[Any]:
        """Return the validation batches: the same at every call, drawn from their own streams."""
        ...

    def measure(self, weights: Weights, batch: Any) -> Measured:
        """Return the batch's loss and scalars under the given weights."""
        ...


@dataclass(slots=True)
class _State:
    weights: Weights
    optimiser: optim.Optimizer
    step: int
    history: list[dict[str, Any]]
    quiet: int = 0


SATURATED_STEPS = 5


def train(objective: Objective, weights: Weights, *, schedule: Schedule, partial: Path) -> tuple[Weights, list[dict]]:
    """Train float32 weights and return them with the history rows; resume from `partial` to the bit.

    Raises TrainingError when the loss is not finite or the student saturates; checkpoints stay usable.
    """
    state = _resume(weights, partial)
    checks = objective.validation()
    bar = tqdm(total=schedule.steps, initial=state.step, desc="train", unit="step", mininterval=10)
    while state.step < schedule.steps:
        _step(objective, state, schedule)
        last = state.step == schedule.steps
        if state.step % schedule.validate_every == 0 or last:
            state.history.append(_validate(objective, state, checks, schedule))
        if state.step % schedule.checkpoint_every == 0 and not last:
            save_checkpoint(partial, state.step, state.weights, state.optimiser.state, state.history)
        bar.set_postfix(loss=f"{state.history[-1]['loss']:.3f}", refresh=False)
        bar.update()
    bar.close()
    return state.weights, state.history


def _resume(weights: Weights, partial: Path) -> _State:
    optimiser = optim.AdamW(learning_rate=0.0, weight_decay=0.0, bias_correction=True)
    optimiser.init(weights)
    found = load_checkpoint(partial)
    if found is None:
        return _State(weights, optimiser, 0, [])
    # Names have dots, and the gradient norm is summed in the weights' order: fill the fresh trees, build none.
    optimiser.state = tree_map_with_path(lambda name, _: found.optimiser[name], optimiser.state)
    return _State({name: found.weights[name] for name in weights}, optimiser, found.step, found.history)


def _step(objective: Objective, state: _State, schedule: Schedule) -> None:
    measured, gradients = _gradients(objective, state, schedule)
    gradients, norm = optim.clip_grad_norm(gradients, schedule.clip)
    rate = schedule.rate(state.step)
    state.optimiser.learning_rate = mx.array(rate)
    state.weights = state.optimiser.apply_gradients(gradients, state.weights)
    mx.eval(state.weights, state.optimiser.state, norm, _scalars(measured))
    state.step += 1
    _guard(state, measured, number(norm))
    state.history.append(_row("train", state.step, measured, number(norm), rate))


def _gradients(objective: Objective, state: _State, schedule: Schedule) -> tuple[Measured, Weights]:
    """Return the mean of a step's batches: their scalars and the gradients, a batch's graph at a time."""
    found: list[Measured] = []
    total: Weights = {}
    for place in range(state.step * schedule.accumulate, (state.step + 1) * schedule.accumulate):
        batch = objective.batch(place)

        def scalars(weights: Weights, batch: Any = batch) -> tuple[mx.array, Measured]:
            measured = objective.measure(weights, batch)
            return measured.loss, measured

        (_, measured), gradients = mx.value_and_grad(scalars)(state.weights)
        found.append(measured)
        if schedule.accumulate == 1:
            return measured, gradients
        total = {name: total.get(name, 0) + part / schedule.accumulate for name, part in gradients.items()}
        mx.eval(total, _scalars(measured))
    return _mean(found), total


def _scalars(measured: Measured) -> list[mx.array]:
    return [value for name in Measured.__slots__ if (value := getattr(measured, name)) is not None]


def _mean(found: list[Measured]) -> Measured:
    names = [name for name in Measured.__slots__ if getattr(found[0], name) is not None]
    return Measured(**{name: mx.mean(mx.stack([getattr(each, name) for each in found])) for name in names})


def _guard(state: _State, measured: Measured, norm: float) -> None:
    loss = number(measured.loss)
    if not (isfinite(loss) and isfinite(norm)):
        raise TrainingError(
            f"loss is {loss}, gradient norm {norm} at step {state.step}; lower learning_rate or check the teacher"
        )
    saturated = norm < 1e-3 and number(measured.student_peak) > 2 * number(measured.teacher_peak)
    state.quiet = state.quiet + 1 if saturated else 0
    if state.quiet >= SATURATED_STEPS:
        raise TrainingError(f"the student saturated at step {state.step}: no gradient is left; lower learning_rate")


def _validate(objective: Objective, state: _State, checks: list[Any], schedule: Schedule) -> dict[str, Any]:
    found = [objective.measure(state.weights, batch) for batch in checks]
    return _row("validation", state.step, _mean(found), None, None)


def _row(split: str, step: int, measured: Measured, norm: float | None, rate: float | None) -> dict[str, Any]:
    return {
        "step": step,
        "split": split,
        "loss": number(measured.loss),
        "agreement": number(measured.agreement),
        "gradient_norm": norm,
        "learning_rate": rate,
        "accepted": None if measured.accepted is None else number(measured.accepted),
    }
