"""DSpark's small sequential heads: what the previous token adds to a slot's logits, and how sure the drafter is."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn

State = mx.array | None


class VanillaMarkov(nn.Module):
    """A rank-r table of token pairs: bias = W2 W1[previous]. hidden: [1, H], the slot's row; state: [1, r] or null."""

    def __init__(self, hidden: int, *, vocabulary: int, drafted: int, rank: int) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(vocabulary, rank)
        self.markov_w2 = nn.Linear(rank, drafted, bias=False)

    def bias(self, previous: mx.array, hidden: mx.array, state: State) -> tuple[mx.array, State]:
        """Return what is added to a slot's logits, [1, drafted], after previous [1], and the next state."""
        return self.markov_w2(self.markov_w1(previous)), state


class GatedMarkov(VanillaMarkov):
    """The slot's hidden row gates the previous token: bias = W2 (sigmoid(Wg [h; W1[previous]] + b) W1[previous])."""

    def __init__(self, hidden: int, *, vocabulary: int, drafted: int, rank: int) -> None:
        super().__init__(hidden, vocabulary=vocabulary, drafted=drafted, rank=rank)
        self.gate_proj = nn.Linear(hidden + rank, rank)

    def bias(self, previous: mx.array, hidden: mx.array, state: State) -> tuple[mx.array, State]:
        """Return what is added to a slot's logits, [1, drafted], after previous [1], and the next state."""
        token = self.markov_w1(previous)
        gate = mx.sigmoid(self.gate_proj(mx.concatenate([hidden, token], axis=-1)))
        return self.markov_w2(gate * token), state


class RecurrentMarkov(VanillaMarkov):
    """A gated recurrence over the block: s <- g s + (1 - g) tanh(c), bias = W2 tanh(o), from [s; W1[previous]; h]."""

    def __init__(self, hidden: int, *, vocabulary: int, drafted: int, rank: int) -> None:
        super().__init__(hidden, vocabulary=vocabulary, drafted=drafted, rank=rank)
        self.joint_proj = nn.Linear(2 * rank + hidden, 3 * rank)

    def bias(self, previous: mx.array, hidden: mx.array, state: State) -> tuple[mx.array, State]:
        """Return what is added to a slot's logits, [1, drafted], after previous [1], and the next state."""
        token = self.markov_w1(previous)
        state = mx.zeros_like(token) if state is None else state
        gate, candidate, out = mx.split(self.joint_proj(mx.concatenate([state, token, hidden], axis=-1)), 3, axis=-1)
        gate = mx.sigmoid(gate)
        return self.markov_w2(mx.tanh(out)), gate * state + (1 - gate) * mx.tanh(candidate)


HEADS: dict[str, Any] = {"vanilla": VanillaMarkov, "gated": GatedMarkov, "rnn": RecurrentMarkov}


class ConfidenceHead(nn.Module):
    """sigmoid(w [h; W1[previous]] + b): the chance that a slot's token is accepted when all before it are."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, 1)

    def __call__(self, features: mx.array) -> mx.array:
        """Return the chance [n] float32 of each slot from features [n, H] or [n, H + r]."""
        return mx.sigmoid(self.proj(features).astype(mx.float32))[:, 0]
