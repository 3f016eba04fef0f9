"""The objective of drafters that hear taps: many blocks a window in one pass, taught at every slot."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.nn.utils import checkpoint
from mlx.utils import tree_unflatten

from draftledger.arrays import rolled
from draftledger.drafters.block_adapter import assembled
from draftledger.drafters.dflash_model import DFlashDraftModel
from draftledger.drafters.formats.write import write_adapter
from draftledger.drafters.initial import initial
from draftledger.models.taps import Tapped
from draftledger.rng import generator, key_of
from draftledger.training.anchored import Blocks, anchored, hidden_rows
from draftledger.training.blocks import epoch_rows, whole_batches
from draftledger.training.data import Windows
from draftledger.training.losses import cross_entropy, pace_weights, position_weights
from draftledger.training.teaching import Live, Rows, kept_rows, shuffling
from draftledger.training.trainer import Measured, Weights

CHUNK = 4096


@dataclass(frozen=True, slots=True)
class Batch:
    """N = W·M blocks of B rows and n slots.

    inputs: [N, B] int32; features: [W, T, taps·H]; `before` and `labels`: [N, n] int32, the text's token before each
    slot and in it; taught: [N, n] float32, 0 for slots outside the answer; rows: what the target says at each slot.
    """

    inputs: mx.array
    features: mx.array
    blocks: Blocks
    before: mx.array
    labels: mx.array
    taught: mx.array
    rows: Rows


class BlockDrafterObjective:
    """Trains a DFlash or DSpark drafter of one seed.

    `spec` holds shape, anchors (blocks a window), batch (windows a step), loss (weights of `ce`, `kl`, `tv`, `lk`,
    and for DSpark `confidence`), teacher and live. Optional: gamma, the slots' decay; pace, D-PACE's alpha, instead
    of it; stages, earlier and shorter blocks; chunk, slots whose logits are made at a time.
    """

    def __init__(
        self, model: nn.Module, *, train: Windows, validation: Windows, spec: dict[str, Any], seed: int
    ) -> None:
        self.model, self.spec, self.seed = model, spec, seed
        self.splits = {"train": train, "validation": validation}
        self.config, self._fresh = initial(spec, model=model, key=mx.random.key(key_of(seed, "adapter", 0)))
        self.student = anchored(assembled(self.config, self._fresh, target=model))
        self.dtype = self.student.norm.weight.dtype
        self._tapped = Tapped(model, self.config.target_layer_ids)

    def initial(self) -> Weights:
        """Return the seed's fresh float32 weights."""
        return dict(self._fresh)

    def save(self, weights: Weights, path: Path) -> None:
        """Write the drafter with its configuration, in the dtype that it is decoded with."""
        write_adapter(path, self.config, {name: array.astype(self.dtype) for name, array in weights.items()})

    def batch(self, step: int) -> Batch:
        """Return the training batch of a step: the next windows of this epoch's keyed order, at fresh anchors."""
        rows = epoch_rows(self.seed, step, size=self.spec["batch"], windows=len(self.splits["train"].tokens))
        return self._blocks("train", rows, seed=self.seed, step=step)

    def validation(self) -> list[Batch]:
        """Return every validation window once, at anchors that no training step draws."""
        groups = whole_batches(len(self.splits["validation"].tokens), self.spec["batch"])
        return [self._blocks("validation", group, seed=0, step=group[0]) for group in groups]

    def measure(self, weights: Weights, batch: Batch) -> Measured:
        """Return the batch's loss, and how often and how far the drafter says what the target does."""
        cast = [(name, array.astype(self.dtype)) for name, array in weights.items()]
        self.student.update(tree_unflatten(cast))
        hidden = hidden_rows(self.student, batch.inputs, batch.features, batch.blocks)
        size = max(1, self.spec.get("chunk", CHUNK) // hidden.shape[1])
        parts = [self._part(hidden, batch, slice(at, at + size)) for at in range(0, hidden.shape[0], size)]
        sums = mx.stack([part[0] for part in parts]).sum(axis=0)
        peak = mx.stack([part[1] for part in parts]).max()
        blocks, slots = batch.taught.shape
        decay = position_weights(slots, self.spec.get("gamma"))
        whole = (batch.taught * decay).sum() if self._pace is None else blocks
        return Measured(sums[0] / whole, sums[1] / batch.taught.sum(), peak, batch.rows.peak, sums[2] / blocks)

    def logits(self, student: DFlashDraftModel, hidden: mx.array, before: mx.array) -> mx.array:
        """Return the drafter's logits [N, n, V] float32 of hidden rows [N, n, H] after the tokens before [N, n]."""
        return student.logits(hidden).astype(mx.float32)

    def extra(self, student: DFlashDraftModel, hidden: mx.array, before: mx.array, tv: mx.array) -> mx.array:
        """Return what a kind adds to the loss of each slot [N, n]; tv: [N, n] is the slots' total variation."""
        return mx.zeros_like(tv)

    @property
    def _pace(self) -> float | None:
        return self.spec.get("pace")

    def _part(self, hidden: mx.array, batch: Batch, chosen: slice) -> tuple[mx.array, mx.array]:
        """Return the sums (loss, agreement, accepted) [3] over some blocks and their largest logit.

        Their logits are made again for the gradient, so that no more than one part's are held.
        """
        before, labels, rows = batch.before[chosen], batch.labels[chosen], batch.rows.part(chosen)
        taught = batch.taught[chosen]

        def sums(hidden: mx.array) -> tuple[mx.array, mx.array]:
            logits = self.logits(self.student, hidden, before)
            weights = self._weights(logits, labels, taught)
            loss = (weights * self._loss(hidden, logits, before, labels, rows)).sum()
            right = taught * (mx.argmax(logits, axis=-1) == rows.best)
            accepted = mx.cumprod(right, axis=-1)
            return mx.stack([loss, right.sum(), accepted.sum()]), mx.stop_gradient(mx.abs(logits).max())

        return checkpoint(self.student, sums)(hidden[chosen])

    def _loss(self, hidden: mx.array, logits: mx.array, before: mx.array, labels: mx.array, rows: Rows) -> mx.array:
        weights = dict(self.spec["loss"])
        confidence = weights.pop("confidence", 0.0)
        found = weights.pop("ce", 0.0) * cross_entropy(logits, labels)
        for name, weight in weights.items():
            found = found + weight * rows.term(name, logits)
        if confidence:
            found = found + confidence * self.extra(self.student, hidden, before, rows.term("tv", logits))
        return found

    def _weights(self, logits: mx.array, labels: mx.array, taught: mx.array) -> mx.array:
        if self._pace is None:
            return taught * position_weights(labels.shape[1], self.spec.get("gamma"))
        return pace_weights(mx.exp(-cross_entropy(mx.stop_gradient(logits), labels)), taught, alpha=self._pace)

    def _blocks(self, split: str, rows: list[int], *, seed: int, step: int) -> Batch:
        windows = self.splits[split]
        tokens = windows.tokens[rows]
        size = block_rows(self.spec, split, step, whole=self.config.block_size)
        slots = size - self.config.first_predicting
        after = np.arange(2, tokens.shape[1] - slots + 1)[None]
        anchors = self._anchors(split, step, seed=seed, taught=windows.taught(rows, after))
        logits, features = self._tapped.windows(mx.array(tokens))
        places = anchors[..., None] + np.arange(slots + 1)
        text = tokens[np.arange(len(rows))[:, None, None], places]
        text = text.reshape(-1, slots + 1)
        masks = np.full((len(text), size - 1), self.config.mask_token_id, dtype=np.int32)
        labels = mx.array(text[:, 1:])
        said = self._rows(windows, rows, anchors, slots, logits)
        if self.spec["teacher"] == "shuffled" and split == "train":
            turn, names = shuffling(self.seed, step, blocks=len(text), vocabulary=self.config.vocab_size)
            said, labels = said.of_others(turn, names), names[rolled(labels, turn)]
        return Batch(
            inputs=mx.array(np.concatenate([text[:, :1], masks], axis=1)),
            features=features.reshape(*features.shape[:2], -1),
            blocks=Blocks(mx.array(anchors.astype(np.int32)), rows=size, length=tokens.shape[1]),
            before=mx.array(text[:, :-1]),
            labels=labels,
            taught=mx.array(windows.taught(rows, places[..., 1:]).reshape(-1, slots)),
            rows=said,
        )

    def _anchors(self, split: str, step: int, *, seed: int, taught: np.ndarray) -> np.ndarray:
        """Return each window's anchors [W, M], distinct and sorted, from 1 on.

        Those whose next token is taught come first; taught: [W, R] tells it of the tokens after anchors 1 to R.
        """
        draw = generator(seed, f"anchors/{split}", step).random(taught.shape) - taught
        return 1 + np.sort(np.argsort(draw, axis=1)[:, : self.spec["anchors"]], axis=1)

    def _rows(self, windows: Windows, rows: list[int], anchors: np.ndarray, slots: int, logits: mx.array) -> Rows:
        """Return the target's rows at the places before each slot's token: stored, or heard in the pass just made."""
        place = (anchors[..., None] + np.arange(slots)).reshape(-1, slots)
        window = np.repeat(np.arange(len(rows)), anchors.shape[1])[:, None]
        if self.spec.get("live"):
            return Live(logits[mx.array(window), mx.array(place)])
        return kept_rows(windows.teacher, np.asarray(rows)[window], place)


def block_rows(spec: dict[str, Any], split: str, step: int, *, whole: int) -> int:
    """Return the rows of a block at a step: those of its stage in training, the whole block in validation."""
    stages = spec.get("stages", ()) if split == "train" else ()
    return next((stage["block"] for stage in stages if step < stage["until"]), whole)
