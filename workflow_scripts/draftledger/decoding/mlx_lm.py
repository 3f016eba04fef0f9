"""The second baseline: mlx-lm's own pipelined generator, told as rounds of one token."""

from collections.abc import Iterator
from itertools import count

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.generate import generate_step

from draftledger.arrays import integers
from draftledger.decoding.acceptance import sampled
from draftledger.decoding.loop import Limits, Round, cut
from draftledger.decoding.sampling import Sampling
from draftledger.drafters.base import nothing
from draftledger.models.exact import plain


class _Sampler:
    """Draws as our own loop does, and keeps each step's decision until it is told."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling, self.made = sampling, {}
        self._steps = count(-1)

    def __call__(self, logprobs: mx.array) -> mx.array:
        step = next(self._steps)
        self.made[step] = sampled(logprobs, nothing(), step, sampling=self.sampling)
        return self.made[step].token


def generate(
    model: nn.Module, prompt: mx.array, *, limits: Limits, sampling: Sampling | None = None
) -> Iterator[Round]:
    """Yield one answer to prompt: [T] int32 as mlx-lm's `generate_step` gives it."""
    anchor, answer = integers(prompt)[-1], []
    sampler = _Sampler(sampling) if sampling else None
    steps = generate_step(prompt, plain(model), max_tokens=limits.new_tokens, sampler=sampler)
    for index, (token, _) in enumerate(steps, start=-1):
        committed, stop = cut((int(token),), limits, answer)
        decisions = sampler.made.pop(index).decisions() if sampler else None
        yield Round(index, anchor, (), 0, 0, 0, committed, False, 0, 0, stop, decisions)
        if stop:
            return
        anchor = int(token)
        answer.append(anchor)
