"""DFlash 2's candidate selector: one coherent path through each slot's likeliest tokens."""

from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from draftledger.decoding.sampling import Sampling, distribution, draw


@dataclass(frozen=True, slots=True)
class Path:
    """The chosen tokens [n] int32 and, when sampled, what each was drawn from: q and candidates [n, K]."""

    tokens: mx.array
    q: mx.array | None = None
    candidates: mx.array | None = None


class CandidateSelector(nn.Module):
    """Scores a candidate c after its predecessor p: logit_c + sum over r of A[p]_r (W h)_r S[c]_r."""

    def __init__(self, hidden: int, *, vocabulary: int, rank: int, top_k: int) -> None:
        super().__init__()
        self.top_k = top_k
        self.predecessor_codebook = mx.zeros((vocabulary, rank))
        self.successor_codebook = mx.zeros((vocabulary, rank))
        self.hidden_projection = nn.Linear(hidden, rank, bias=False)

    def scores(self, hidden: mx.array, logits: mx.array, anchor: mx.array) -> tuple[mx.array, mx.array]:
        """Return candidates [n, K] int32 and scores [n, K, K]: of slot i's candidates after each of slot i - 1's.

        hidden: [n, H] and logits: [n, V] of the n slots. Slot 0 has the anchor [1] as all of its predecessors.
        """
        count = min(self.top_k, logits.shape[-1])
        candidates = mx.argpartition(logits, -count, axis=-1)[:, -count:].astype(mx.int32)
        before = mx.concatenate([mx.broadcast_to(anchor, (1, count)), candidates[:-1]])
        after = self.hidden_projection(hidden)[:, None] * self.successor_codebook[candidates]
        edges = self.predecessor_codebook[before] @ after.swapaxes(-1, -2)
        return candidates, mx.take_along_axis(logits, candidates, axis=-1)[:, None] + edges

    def __call__(
        self,
        hidden: mx.array,
        logits: mx.array,
        anchor: mx.array,
        *,
        sampling: Sampling | None,
        uniform: np.ndarray | None,
    ) -> Path:
        """Walk from the anchor: to the best candidate or, with `sampling`, to one drawn at its temperature.

        uniform: [n], the walk's draws. Filters such as top-p act on the target's side only.
        """
        candidates, scores = self.scores(hidden, logits, anchor)
        if sampling is None or uniform is None:
            places = _walk(mx.argmax(scores, axis=-1))
            return Path(_at(candidates, places))
        count = scores.shape[-1]
        q = distribution(scores.reshape(-1, count), Sampling(sampling.temperature))
        next_places = draw(q, np.repeat(uniform, count)).reshape(-1, count)
        places = _walk(next_places)
        came_from = mx.concatenate([mx.zeros((1,), dtype=mx.int32), places[:-1]])
        taken = mx.take_along_axis(q.reshape(scores.shape), came_from[:, None, None], axis=1)[:, 0]
        return Path(_at(candidates, places), taken, candidates)


def _walk(next_places: mx.array) -> mx.array:
    """Follow next_places [n, K], each candidate's successor, from place 0 on: the places [n] int32 on the path."""
    place, path = mx.zeros((1,), dtype=mx.int32), []
    for row in next_places.astype(mx.int32):
        place = row[place]
        path.append(place)
    return mx.concatenate(path)


def _at(candidates: mx.array, places: mx.array) -> mx.array:
    return mx.take_along_axis(candidates, places[:, None], axis=1)[:, 0]
