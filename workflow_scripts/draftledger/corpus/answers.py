"""Turns the target's own answers into token windows: prompt and answer, supervised on the answer alone."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from draftledger.corpus.overlap import OverlapRule, PromptIndex, Tokenizer, overlap_table, prompt_index
from draftledger.corpus.windows import SCHEMA, document_side
from draftledger.errors import ConfigError
from draftledger.measurement.acceptance_metrics import repeated_positions
from draftledger.provenance.tables import close_counts, with_counts

Tokens = tuple[int, ...]
REASONS = ("overlapping", "looped", "short", "duplicate", "unused")


@dataclass(frozen=True, slots=True)
class AnswerRule:
    """Which answers teach: at least `shortest` tokens, repeating at most the share `loops` of their n-grams."""

    length: int
    shortest: int
    loop_ngram: int
    loops: float

    def __post_init__(self) -> None:
        if not 1 <= self.shortest < self.length or self.loop_ngram < 1 or not 0 <= self.loops <= 1:
            raise ConfigError(f"answer rule {self}: shortest must be below length, and loops between 0 and 1")


def answer_windows(
    rows: Iterable[Mapping[str, Any]],
    *,
    tokenizer: Tokenizer,
    sizes: Mapping[str, int],
    seed: int,
    prompts: Sequence[Mapping[str, str]],
    rule: AnswerRule,
    overlap: OverlapRule,
) -> dict[str, pa.Table]:
    """Make windows of `rule.length` tokens from answered questions, in the order of their numbers.

    rows: number, prompt list<int>, answer list<int>. A window is cut or padded; `first` is the place of
    the answer's first token and `valid` the number of tokens that are not padding. A keyed hash puts a question on
    one side of the split. Every question is a window or is counted under the reason why not.

    Raises:
        ConfigError: a side has fewer windows than `sizes` asks for.
    """
    index = prompt_index(prompts, tokenizer=tokenizer, ngram=overlap.ngram)
    pad = min(tokenizer.eos_ids, default=0)
    share = sizes["validation"] / sum(sizes.values())
    kept: dict[str, list[dict[str, Any]]] = {side: [] for side in sizes}
    counts: dict[str, Counter[str]] = {side: Counter() for side in sizes}
    seen: set[Tokens] = set()
    for row in sorted(rows, key=lambda row: row["number"]):
        name = f"question/{row['number']:07d}"
        side = document_side(name, share=share, seed=seed)
        full = len(kept[side]) >= sizes[side]
        reason = "unused" if full else _reason(row, index=index, rule=rule, overlap=overlap, seen=seen)
        counts[side][reason or "kept"] += 1
        if reason is None:
            kept[side].append(_window(name, row, number=len(kept[side]), length=rule.length, pad=pad))
    tables = {side: _table(kept[side], counts[side], side=side, wanted=sizes[side]) for side in sizes}
    spoken = {side: [row["tokens"][: row["valid"]] for row in kept[side]] for side in sizes}
    return tables | {"overlap": overlap_table(index, spoken)}


def _reason(
    row: Mapping[str, Any], *, index: PromptIndex, rule: AnswerRule, overlap: OverlapRule, seen: set[Tokens]
) -> str | None:
    """Return why an answer does not teach, or null; remember it when it does."""
    answer = tuple(row["answer"])
    if index.worst_share([*row["prompt"], *answer]) > overlap.bound:
        return "overlapping"
    room = rule.length - len(row["prompt"])
    if min(len(answer), room) < rule.shortest:
        return "short"
    if loop_share(answer, rule.loop_ngram) > rule.loops:
        return "looped"
    if answer in seen:
        return "duplicate"
    seen.add(answer)
    return None


def loop_share(tokens: Sequence[int], length: int) -> float:
    """Return the share of a text's n-grams that repeat an earlier one, in [0, 1]; 0 for a shorter text."""
    total = len(tokens) - length + 1
    return repeated_positions(np.array(tokens), length) / total if total > 0 else 0.0


def _window(name: str, row: Mapping[str, Any], *, number: int, length: int, pad: int) -> dict[str, Any]:
    tokens = [*row["prompt"], *row["answer"]][:length]
    padded = tokens + [pad] * (length - len(tokens))
    first, valid = len(row["prompt"]), len(tokens)
    return {"window": number, "document": name, "start": 0, "tokens": padded, "first": first, "valid": valid}


def _table(rows: list[dict[str, Any]], counts: Counter[str], *, side: str, wanted: int) -> pa.Table:
    if len(rows) < wanted:
        told = ", ".join(f"{counts[reason]} {reason}" for reason in REASONS[:-1])
        raise ConfigError(
            f"{side}: {wanted} windows are asked for, {len(rows)} answers will do ({told}); "
            f"raise continuations.questions or lower windows.{side}"
        )
    closed = {"questions": counts.total(), "windows": len(rows), **{reason: counts[reason] for reason in REASONS}}
    close_counts(closed, whole="questions", parts=("windows", *REASONS))
    return with_counts(pa.Table.from_pylist(rows, schema=SCHEMA), closed)
