"""Cuts documents into token windows of one length, split by document and spread over all of them."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from draftledger.corpus.overlap import OverlapRule, PromptIndex, Tokenizer, overlap_table, prompt_index
from draftledger.errors import ConfigError
from draftledger.provenance.tables import close_counts, with_counts

SCHEMA = pa.schema(
    [
        pa.field("window", pa.int32(), nullable=False),
        pa.field("document", pa.string(), nullable=False),
        pa.field("start", pa.int32(), nullable=False),
        pa.field("tokens", pa.list_(pa.int32()), nullable=False),
        pa.field("first", pa.int32(), nullable=False),
        pa.field("valid", pa.int32(), nullable=False),
    ]
)
DEFAULT_RULE = OverlapRule()
Pairs = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Window:
    """`length` consecutive tokens of one document, from token `start` on."""

    document: str
    start: int
    tokens: list[int]


def cut_windows(
    documents: pa.Table,
    *,
    tokenizer: Tokenizer,
    length: int,
    sizes: Mapping[str, int],
    seed: int,
    prompts: Sequence[Mapping[str, str]],
    overlap: OverlapRule = DEFAULT_RULE,
) -> dict[str, pa.Table]:
    """Draw `sizes[split]` windows of `length` tokens, at most one a document until all gave one.

    A keyed hash of its id puts a document on one side of the split. A document is encoded alone, an end
    token is added, and it is cut from an offset keyed by its id: no window holds two documents or overlaps
    another.
    Windows that hold too much of an evaluation prompt (`overlap`) are dropped and counted.

    Returns:
        Tables `train` and `validation` (window int32, document string, start int32, tokens list<int32>
        `[length]`; the tokens from `first` on are supervised, those from `valid` on are padding) with counts
        in the metadata, and `overlap` (see `overlap_table`).

    Raises:
        ConfigError: a size is not positive, or the text holds too few windows.
    """
    train, validation = sizes["train"], sizes["validation"]
    if length < 2 or train < 1 or validation < 0:
        raise ConfigError(f"windows: length {length}, train {train}, validation {validation} are too small")
    index = prompt_index(prompts, tokenizer=tokenizer, ngram=overlap.ngram)
    sides = _split(documents, share=validation / (train + validation), seed=seed)
    tables, kept = {}, {}
    for split, wanted in sizes.items():
        source = _Source(sides[split], tokenizer=tokenizer, length=length, seed=seed)
        kept[split], dropped = _draw(source, wanted=wanted, index=index, rule=overlap, split=split)
        counts = source.counts(kept[split], dropped=dropped)
        tables[split] = with_counts(_table(kept[split]), counts)
    tables["overlap"] = overlap_table(index, {name: [w.tokens for w in kept[name]] for name in kept})
    return tables


def _key(seed: int, purpose: str, identity: str) -> int:
    """Return 64 bits that depend on nothing but the arguments."""
    text = f"{seed}\0{purpose}\0{identity}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def _split(documents: pa.Table, *, share: float, seed: int) -> dict[str, Pairs]:
    """Deal (id, text) pairs to the splits, each in hash order; no document's side depends on the others."""
    sides: dict[str, Pairs] = {"train": [], "validation": []}
    pairs = zip(documents["id"].to_pylist(), documents["text"].to_pylist(), strict=True)
    for identity, text in sorted(pairs, key=lambda pair: (_key(seed, "order", pair[0]), pair[0])):
        sides[document_side(identity, share=share, seed=seed)].append((identity, text))
    return sides


def document_side(identity: str, *, share: float, seed: int) -> str:
    """Return the split of a document: a keyed hash of its id sends the share `share` to validation."""
    return "validation" if _key(seed, "split", identity) < share * 2**64 else "train"


class _Source:
    """The documents of one split, encoded only when a window of theirs is asked for."""

    def __init__(self, documents: Pairs, *, tokenizer: Tokenizer, length: int, seed: int) -> None:
        self.documents, self.length, self.seed = documents, length, seed
        self.tokenizer = tokenizer
        self.end = sorted(tokenizer.eos_ids)[:1]
        self.too_short: set[str] = set()

    def windows(self) -> Iterator[Window]:
        """Yield one window of every document, then a second one of those that have more, and so on."""
        waiting = []
        for identity, text in self.documents:
            first, *more = self._cut(identity, text) or [None]
            if first is None:
                self.too_short.add(identity)
                continue
            yield first
            waiting.append(more)
        for depth in range(max(map(len, waiting), default=0)):
            yield from (more[depth] for more in waiting if depth < len(more))

    def _cut(self, identity: str, text: str) -> list[Window]:
        tokens = [*self.tokenizer.encode(text), *self.end]
        rng = np.random.Generator(np.random.Philox(key=_key(self.seed, "cut", identity)))
        number, rest = divmod(len(tokens), self.length)
        offset = int(rng.integers(rest + 1))
        starts = offset + self.length * rng.permutation(number)
        return [Window(identity, int(at), tokens[at : at + self.length]) for at in starts]

    def counts(self, kept: list[Window], *, dropped: int) -> dict[str, int]:
        """Count documents and windows: every document is used, too short, or left unused."""
        used = {window.document for window in kept}
        met = used | self.too_short
        unused = [name for name, _ in self.documents if name not in met]
        counts = {
            "documents": len(self.documents),
            "documents_used": len(used),
            "documents_too_short": len(self.too_short),
            "documents_unused": len(unused),
            "windows": len(kept) + dropped,
            "windows_kept": len(kept),
            "windows_overlapping": dropped,
        }
        close_counts(counts, whole="documents", parts=[n for n in counts if n.startswith("documents_")])
        close_counts(counts, whole="windows", parts=("windows_kept", "windows_overlapping"))
        return counts


def _draw(
    source: _Source, *, wanted: int, index: PromptIndex, rule: OverlapRule, split: str
) -> tuple[list[Window], int]:
    """Take the first `wanted` windows that are within the overlap bound; also return how many were not."""
    kept: list[Window] = []
    dropped = 0
    windows = source.windows()
    while len(kept) < wanted and (window := next(windows, None)):
        if index.worst_share(window.tokens) > rule.bound:
            dropped += 1
        else:
            kept.append(window)
    if len(kept) < wanted:
        raise ConfigError(
            f"{split}: {wanted} windows of {source.length} tokens are asked for, there are {len(kept)} "
            f"({dropped} more repeat an evaluation prompt); lower {split} or the length, or add text"
        )
    return kept, dropped


def _table(windows: list[Window]) -> pa.Table:
    columns = {
        "window": range(len(windows)),
        "document": [window.document for window in windows],
        "start": [window.start for window in windows],
        "tokens": [window.tokens for window in windows],
        "first": [0] * len(windows),
        "valid": [len(window.tokens) for window in windows],
    }
    return pa.table({name: list(values) for name, values in columns.items()}, schema=SCHEMA)
