"""The second baseline: mlx-lm's own pipelined generator, told as rounds of one token."""

from collections.abc import Iterator

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.generate import generate_step

from draftledger.arrays import integers
from draftledger.decoding.loop import Limits, Round, cut


def generate(model: nn.Module, prompt: mx.array, *, limits: Limits) -> Iterator[Round]:
    """Yield one greedy answer to prompt: [T] int32 as mlx-lm's `generate_step` gives it."""
    anchor = integers(prompt)[-1]
    steps = generate_step(prompt, model, max_tokens=limits.new_tokens)
    for place, (token, _) in enumerate(steps):
        committed, stop = cut((int(token),), limits, place)
        yield Round(place - 1, anchor, (), 0, 0, committed, False, 0, 0, stop)
        if stop:
            return
        anchor = int(token)
