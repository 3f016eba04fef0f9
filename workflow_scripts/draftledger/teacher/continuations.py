"""The target's own answers to questions, many at once: what decoding will see, so what a drafter should learn."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from mlx_lm.models.cache import make_prompt_cache
from tqdm import tqdm

from draftledger.provenance.tables import write_table
from draftledger.rng import generator, key_of

SCHEMA = pa.schema(
    [
        pa.field("number", pa.int32(), nullable=False),
        pa.field("temperature", pa.float32(), nullable=False),
        pa.field("prompt", pa.list_(pa.int32()), nullable=False),
        pa.field("answer", pa.list_(pa.int32()), nullable=False),
    ]
)
LOOK = 16  # steps between looks at whether every answer has ended; each look waits for the device


@dataclass(frozen=True, slots=True)
class Answering:
    """How answers are drawn: at most `new_tokens`, the end ids, and the key of the sampled ones."""

    new_tokens: int
    eos_ids: frozenset[int]
    seed: int


@dataclass(frozen=True, slots=True)
class Group:
    """Questions whose prompts have equal length, so that no row needs padding; `name` keys their sampling."""

    name: int
    members: tuple[int, ...]


def groups(lengths: Sequence[int], *, batch: int) -> list[Group]:
    """Group prompts by length into batches of at most `batch`, in order; the same whatever jobs share the groups."""
    found: dict[int, list[int]] = defaultdict(list)
    for place, length in enumerate(lengths):
        found[length].append(place)
    cut = [places[at : at + batch] for _, places in sorted(found.items()) for at in range(0, len(places), batch)]
    return [Group(name, tuple(members)) for name, members in enumerate(cut)]


def temperatures_of(numbers: Sequence[int], *, seed: int, share: float, temperature: float) -> np.ndarray:
    """Return each question's temperature [B] float32 by its number alone: `temperature` for a `share`, else 0."""
    sampled = [generator(seed, "sampled", number).random() < share for number in numbers]
    return np.where(sampled, temperature, 0).astype(np.float32)


def answer_all(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    *,
    chosen: Sequence[Group],
    warm: np.ndarray,
    how: Answering,
    partial: Path,
) -> pa.Table:
    """Answer the questions of some groups, in the order of their numbers; warm: [N] is each question's temperature.

    A group that is answered waits in `partial`, so that a killed job goes on at the next one.
    """
    parts = []
    for group in tqdm(chosen, desc="continuations", unit="batch", mininterval=10):
        path = partial / f"group-{group.name:06d}.parquet"
        if not path.is_file():
            rows, members = np.array([prompts[n] for n in group.members], dtype=np.int32), list(group.members)
            answers = answer_group(model, rows, temperatures=warm[members], name=group.name, how=how)
            columns = [members, warm[members], [prompts[n] for n in members], answers]
            write_table(pa.table(list(map(list, columns)), schema=SCHEMA), path)
        parts.append(pq.read_table(path))
    return pa.concat_tables([SCHEMA.empty_table(), *parts]).sort_by("number")


def answer_group(
    model: nn.Module, prompts: np.ndarray, *, temperatures: np.ndarray, name: int, how: Answering
) -> list[list[int]]:
    """Answer prompts: [B, T] int32 at temperatures: [B] (0 is greedy) and return each answer, its end id kept."""
    steps = []
    for step, chosen in enumerate(_tokens(model, mx.array(prompts), mx.array(temperatures), name=name, how=how)):
        steps.append(chosen)
        if step % LOOK == LOOK - 1 and _ended(steps, how.eos_ids):
            break
    rows = np.array(mx.stack(steps, axis=1))
    return [_cut(row, how.eos_ids) for row in rows.tolist()]


def _tokens(
    model: nn.Module, prompts: mx.array, temperatures: mx.array, *, name: int, how: Answering
) -> Iterator[mx.array]:
    """Yield each step's tokens [B], the next step already queued."""
    caches = make_prompt_cache(model)
    rows = prompts
    for step in range(how.new_tokens):
        key = mx.random.key(key_of(how.seed, f"answers/{name}", step))
        rows = _choose(model(rows, cache=caches)[:, -1], temperatures, key)[:, None]
        mx.async_eval(rows)
        yield rows[:, 0]


def _choose(logits: mx.array, temperatures: mx.array, key: mx.array) -> mx.array:
    logits = logits.astype(mx.float32)
    warm = mx.where(temperatures > 0, temperatures, 1)[:, None]
    drawn = mx.random.categorical(logits / warm, key=key)
    return mx.where(temperatures > 0, drawn, mx.argmax(logits, axis=-1)).astype(mx.int32)


def _ended(steps: Sequence[mx.array], eos_ids: frozenset[int]) -> bool:
    ends = mx.array(sorted(eos_ids))
    seen = (mx.stack(list(steps), axis=1)[..., None] == ends).any(axis=-1).any(axis=-1).all()
    return bool(cast(bool, seen.item()))


def _cut(tokens: list[int], eos_ids: frozenset[int]) -> list[int]:
    end = next((place + 1 for place, token in enumerate(tokens) if token in eos_ids), len(tokens))
    return tokens[:end]
