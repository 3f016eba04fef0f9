"""The block-LoRA objective: noise rows at random anchors, taught the target's own distribution at their place."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from draftledger.arrays import save_tensors
from draftledger.drafters.block_lora import check_noise_bound, gated, initial_weights
from draftledger.drafters.target_ends import ends_of
from draftledger.rng import generator, key_of, noise_ids
from draftledger.training.blocks import clean_caches, epoch_rows, fresh, sample_anchors, whole_batches
from draftledger.training.data import Windows
from draftledger.training.teaching import Kept, kept_rows, shuffling
from draftledger.training.trainer import Measured, Weights


@dataclass(frozen=True, slots=True)
class Batch:
    """N blocks: noise ids [N, k], forked caches, taught [N, k] (0 for slots outside the answer), the teacher's rows."""

    noise: mx.array
    caches: list[Any]
    taught: mx.array
    rows: Kept


class BlockLoraObjective:
    """Trains the adapter of one seed; `spec` holds k, anchors, batch, loss, scale, noise_bound and teacher.

    Optional in it: `stages`, earlier widths; `corruption: uniform`, which leaves clean tokens among the noise.
    """

    def __init__(
        self, model: nn.Module, *, train: Windows, validation: Windows, spec: dict[str, Any], seed: int
    ) -> None:
        self.model, self.spec, self.seed = model, spec, seed
        self.splits = {"train": train, "validation": validation}

    def initial(self) -> Weights:
        """Return the seed's fresh weights: a no-op adapter."""
        key = mx.random.key(key_of(self.seed, "adapter", 0))
        return initial_weights(self.model, modules=self.spec["modules"], rank=self.spec["rank"], key=key)

    def batch(self, step: int) -> Batch:
        """Return the training batch of a step: the next windows of this epoch's keyed order."""
        rows = epoch_rows(self.seed, step, size=self.spec["batch"], windows=len(self.splits["train"].tokens))
        return self._blocks("train", rows, seed=self.seed, step=step)

    def validation(self) -> list[Batch]:
        """Return every validation window once, with anchors and noise that no training step draws."""
        groups = whole_batches(len(self.splits["validation"].tokens), self.spec["batch"])
        return [self._blocks("validation", group, seed=0, step=group[0]) for group in groups]

    def measure(self, weights: Weights, batch: Batch) -> Measured:
        """Return the loss of the batch's noise rows against the teacher."""
        student = gated(self.model, weights, scale=self.spec["scale"], first=0)
        logits = student(batch.noise, cache=fresh(batch.caches)).astype(mx.float32)
        whole = mx.maximum(batch.taught.sum(), 1)
        loss = (batch.taught * batch.rows.term(self.spec["loss"], logits)).sum() / whole
        right = batch.taught * (mx.argmax(logits, axis=-1) == batch.rows.best)
        accepted = mx.cumprod(right, axis=-1).sum() / right.shape[0]
        return Measured(loss, right.sum() / whole, mx.abs(logits).max(), batch.rows.peak, accepted)

    def save(self, weights: Weights, path: Path) -> None:
        """Write the adapter as it was trained."""
        save_tensors(path, weights)

    def _blocks(self, split: str, rows: list[int], *, seed: int, step: int) -> Batch:
        windows, k = self.splits[split], _width(self.spec, split, step)
        anchors = self._anchors(split, step, seed=seed, k=k)
        count = len(anchors)
        caches = clean_caches(self.model, mx.array(windows.tokens[rows], dtype=mx.int32), anchors)
        blocks = len(rows) * count
        noise = noise_ids(key_of(seed, split, 0), step, shape=(blocks, k), bound=self.spec["noise_bound"])
        window = np.repeat(rows, count)[:, None]
        place = np.tile(np.asarray(anchors)[:, None] + 1 + np.arange(k), (len(rows), 1))
        if split == "train" and self.spec.get("corruption") == "uniform":
            noise = _corrupted(windows.tokens[window, place], noise, generator(seed, "corruption", step))
        said = kept_rows(windows.teacher, window, place)
        if self.spec["teacher"] == "shuffled" and split == "train":
            turns = shuffling(self.seed, step, blocks=blocks, vocabulary=ends_of(self.model).vocabulary)
            said = said.of_others(*turns)
        # A row teaches the token after it; that of the window's last row is not in the window, but the teacher told it.
        next_place = np.minimum(place + 1, windows.tokens.shape[1] - 1)
        taught = windows.taught(np.repeat(rows, count).tolist(), next_place)
        return Batch(noise, caches, mx.array(taught), said)

    def _anchors(self, split: str, step: int, *, seed: int, k: int) -> list[int]:
        length = self.splits[split].tokens.shape[1]
        if self.spec["anchors"] == "end":
            return [length - k - 2]  # where release A put its only block: the window's last row is a target alone
        return sample_anchors(seed, f"anchors/{split}", step, count=self.spec["anchors"], length=length, k=k)


def _width(spec: dict[str, Any], split: str, step: int) -> int:
    """Return the noise rows a block at a step: those of its stage in training, the last in validation."""
    stages = spec.get("stages", ()) if split == "train" else ()
    return next((stage["k"] for stage in stages if step < stage["until"]), spec["k"])


def _corrupted(clean: np.ndarray, noise: mx.array, draw: np.random.Generator) -> mx.array:
    """Return ids [N, k] in which a row is noise with its block's own chance t, uniform in (0, 1), else clean."""
    noisy = draw.random(clean.shape) < draw.random((clean.shape[0], 1))
    return mx.where(mx.array(noisy.astype(np.int32)) > 0, noise, mx.array(clean))


def build(model: nn.Module, *, windows: dict[str, Windows], spec: dict[str, Any], seed: int) -> BlockLoraObjective:
    """Build the objective of one seed; raise ConfigError for noise that the target has no tokens for."""
    check_noise_bound(spec["noise_bound"], vocabulary=ends_of(model).vocabulary)
    return BlockLoraObjective(model, train=windows["train"], validation=windows["validation"], spec=spec, seed=seed)
