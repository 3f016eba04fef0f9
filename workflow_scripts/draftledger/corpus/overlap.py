"""How much of an evaluation prompt a training window has already seen, as shared token n-grams.

An n-gram is `ngram` consecutive tokens of the target's own tokenizer; a prompt that is shorter counts as one
n-gram, the whole prompt. Prompts are encoded alone, so their first token may differ from the same words
inside a text; every later token is compared as the model sees it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from draftledger.errors import ConfigError

Gram = tuple[int, ...]
SCHEMA = pa.schema(
    [
        pa.field("prompt", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("ngrams", pa.int32(), nullable=False),
        pa.field("shared", pa.int32(), nullable=False),
        pa.field("share", pa.float64(), nullable=False),
    ]
)


class Tokenizer(Protocol):
    """What the corpus needs of a tokenizer."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """Return the ids that end a document."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return a text's ids."""
        ...


@dataclass(frozen=True, slots=True)
class OverlapRule:
    """A window is dropped when it holds more than the share `bound` of some prompt's distinct n-grams."""

    ngram: int = 8
    bound: float = 0.0

    def __post_init__(self) -> None:
        if self.ngram < 1 or not 0 <= self.bound <= 1:
            raise ConfigError(f"overlap rule {self}: ngram must be at least 1 and bound between 0 and 1")


@dataclass(frozen=True, slots=True)
class PromptIndex:
    """The distinct n-grams of all prompts: `grams` maps prompt id → n-grams, `holders` the other way."""

    grams: Mapping[str, frozenset[Gram]]
    holders: Mapping[Gram, tuple[str, ...]]

    def shared(self, tokens: Sequence[int]) -> dict[str, set[Gram]]:
        """Return, for each prompt that shares any, its n-grams that occur in `tokens`."""
        found: dict[str, set[Gram]] = defaultdict(set)
        for length in {len(gram) for gram in self.holders}:
            for gram in ngrams(tokens, length):
                for prompt in self.holders.get(gram, ()):
                    found[prompt].add(gram)
        return dict(found)

    def worst_share(self, tokens: Sequence[int]) -> float:
        """Return the largest share of one prompt's distinct n-grams that occurs in `tokens`, in [0, 1]."""
        shared = self.shared(tokens).items()
        return max((len(seen) / len(self.grams[name]) for name, seen in shared), default=0.0)


def ngrams(tokens: Sequence[int], length: int) -> set[Gram]:
    """Return the distinct runs of `length` tokens; none when there are fewer tokens."""
    return {tuple(tokens[start : start + length]) for start in range(len(tokens) - length + 1)}


def prompt_index(prompts: Iterable[Mapping[str, str]], *, tokenizer: Tokenizer, ngram: int) -> PromptIndex:
    """Index the n-grams of prompts given as mappings with `id` and `text`."""
    grams: dict[str, frozenset[Gram]] = {}
    holders: dict[Gram, tuple[str, ...]] = {}
    for prompt in prompts:
        tokens = tokenizer.encode(prompt["text"])
        grams[prompt["id"]] = frozenset(ngrams(tokens, min(ngram, len(tokens))) if tokens else ())
    for name, own in grams.items():
        for gram in own:
            holders[gram] = (*holders.get(gram, ()), name)
    return PromptIndex(grams=grams, holders=holders)


def overlap_table(index: PromptIndex, windows: Mapping[str, Iterable[Sequence[int]]]) -> pa.Table:
    """Report for each split and prompt how many of its n-grams occur in any window that was kept.

    Rows `[splits × prompts]`: prompt, split, ngrams, shared, share (0 for a prompt without tokens).
    """
    rows = []
    for split, kept in windows.items():
        seen: dict[str, set[Gram]] = defaultdict(set)
        for tokens in kept:
            for name, grams in index.shared(tokens).items():
                seen[name] |= grams
        rows += [_row(name, split, len(own), len(seen[name])) for name, own in index.grams.items()]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _row(prompt: str, split: str, total: int, shared: int) -> dict[str, object]:
    share = shared / total if total else 0.0
    return {"prompt": prompt, "split": split, "ngrams": total, "shared": shared, "share": share}
