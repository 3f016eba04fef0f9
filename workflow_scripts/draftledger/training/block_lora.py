"""The block-LoRA objective: noise rows at random anchors, taught the target's own distribution at their place."""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from draftledger.drafters.block_lora import gated, initial_weights
from draftledger.errors import ConfigError
from draftledger.rng import generator, key_of, noise_ids
from draftledger.teacher.topk import TopK
from draftledger.training.blocks import clean_caches, fresh, sample_anchors
from draftledger.training.data import Windows
from draftledger.training.losses import LOSSES
from draftledger.training.trainer import Measured, Weights


@dataclass(frozen=True, slots=True)
class Batch:
    """N blocks: noise ids [N, k], forked caches, and the teacher's rows [N·k, top]."""

    noise: mx.array
    caches: list[Any]
    ids: mx.array
    log_p: mx.array
    tail: mx.array
    peak: mx.array


class BlockLoraObjective:
    """Trains the adapter of one seed; `spec` holds k, anchors, batch, loss, scale, noise_bound and teacher.

    Optional in it: `stages`, earlier widths; `corruption: uniform`, which leaves clean tokens among the noise.
    """

    def __init__(
        self, model: nn.Module, *, train: Windows, validation: Windows, spec: dict[str, Any], seed: int
    ) -> None:
        self.model, self.spec, self.seed = model, spec, seed
        self.vocabulary = int(train.teacher.ids.max()) + 1
        self.splits = {"train": train, "validation": validation}

    def initial(self) -> Weights:
        """Return the seed's fresh weights: a no-op adapter."""
        key = mx.random.key(key_of(self.seed, "adapter", 0))
        return initial_weights(self.model, modules=self.spec["modules"], rank=self.spec["rank"], key=key)

    def batch(self, step: int) -> Batch:
        """Return the training batch of a step: the next windows of this epoch's keyed order."""
        size, windows = self.spec["batch"], len(self.splits["train"].tokens)
        places = [divmod(step * size + i, windows) for i in range(size)]
        rows = [int(generator(self.seed, "order", epoch).permutation(windows)[place]) for epoch, place in places]
        return self._blocks("train", rows, seed=self.seed, step=step)

    def validation(self) -> list[Batch]:
        """Return every validation window once, with anchors and noise that no training step draws."""
        windows = len(self.splits["validation"].tokens)
        size = max(n for n in range(1, self.spec["batch"] + 1) if windows % n == 0)  # equal batches, none left out
        starts = range(0, windows, size)
        return [self._blocks("validation", list(range(s, s + size)), seed=0, step=s) for s in starts]

    def measure(self, weights: Weights, batch: Batch) -> Measured:
        """Return the loss of the batch's noise rows against the teacher."""
        student = gated(self.model, weights, scale=self.spec["scale"], first=0)
        logits = student(batch.noise, cache=fresh(batch.caches)).astype(mx.float32)
        rows = logits.reshape(-1, logits.shape[-1])
        loss = LOSSES[self.spec["loss"]](rows, batch.ids, batch.log_p, batch.tail).mean()
        agreement = (mx.argmax(rows, axis=-1) == batch.ids[:, 0]).astype(mx.float32).mean()
        return Measured(loss, agreement, mx.abs(rows).max(), batch.peak)

    def _blocks(self, split: str, rows: list[int], *, seed: int, step: int) -> Batch:
        windows, k = self.splits[split], _width(self.spec, split, step)
        anchors = self._anchors(split, step, seed=seed, k=k)
        count = len(anchors)
        caches = clean_caches(self.model, mx.array(windows.tokens[rows], dtype=mx.int32), anchors)
        blocks = len(rows) * count
        noise = noise_ids(key_of(seed, split, 0), step, shape=(blocks, k), bound=self.spec["noise_bound"])
        window = np.repeat(rows, count * k)
        place = np.tile((np.asarray(anchors)[:, None] + 1 + np.arange(k)).reshape(-1), len(rows))
        if split == "train" and self.spec.get("corruption") == "uniform":
            clean = windows.tokens[window, place].reshape(blocks, k)
            noise = _corrupted(clean, noise, generator(seed, "corruption", step))
        rename = None
        if self.spec["teacher"] == "shuffled" and split == "train":
            key = key_of(self.seed, "shuffle", step)
            order = _derangement(blocks, k, key=key)
            window, place, rename = window[order], place[order], key
        return _with_teacher(noise, caches, windows.teacher, window, place, rename=rename, vocabulary=self.vocabulary)

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


def _derangement(blocks: int, k: int, *, key: int) -> np.ndarray:
    """Return row indices that give every block the teacher rows of another block."""
    if blocks < 2:
        raise ConfigError("drafters: the shuffled teacher needs two blocks a batch; raise batch or anchors")
    turn = 1 + key % (blocks - 1)
    return np.roll(np.arange(blocks * k).reshape(blocks, k), turn, axis=0).reshape(-1)


def _with_teacher(
    noise: mx.array,
    caches: list[Any],
    teacher: TopK,
    window: np.ndarray,
    place: np.ndarray,
    *,
    rename: int | None,
    vocabulary: int,
) -> Batch:
    """Attach the teacher's rows; with `rename` their ids are permuted, so not even token frequencies carry over."""
    logits, ids = teacher.logits[window, place], teacher.ids[window, place].astype(np.int32)
    if rename is not None:
        ids = generator(rename, "rename", 0).permutation(vocabulary).astype(np.int32)[ids]
    return Batch(
        noise=noise,
        caches=caches,
        ids=mx.array(ids),
        log_p=mx.array(logits - teacher.lse[window, place][:, None]),
        tail=mx.array(teacher.tail[window, place]),
        peak=mx.array(np.abs(logits).max()),
    )


def build(model: nn.Module, *, windows: dict[str, Windows], spec: dict[str, Any], seed: int) -> BlockLoraObjective:
    """Build the objective of one seed."""
    return BlockLoraObjective(model, train=windows["train"], validation=windows["validation"], spec=spec, seed=seed)
