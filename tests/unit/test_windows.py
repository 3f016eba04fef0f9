"""Windows: cut from one document, apart from each other, on one side of the split, free of prompts."""

from collections import Counter, defaultdict
from functools import cache

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftledger.corpus.document import Document, documents_table
from draftledger.corpus.overlap import OverlapRule
from draftledger.corpus.synthetic import documents
from draftledger.corpus.windows import cut_windows
from draftledger.errors import ConfigError
from draftledger.provenance.tables import counts_of


class Bytes:
    """One token a byte, and an end token."""

    eos_ids = frozenset({300, 256})

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


@cache
def corpus(count: int, *, seed: int = 1) -> pa.Table:
    return documents_table(documents(seed=seed, count=count), Counter())


def cut(table: pa.Table, **changed):
    settings = {"length": 32, "train": 40, "validation": 10, "seed": 3, "prompts": []} | changed
    sizes = {split: settings.pop(split) for split in ("train", "validation")}
    return cut_windows(table, tokenizer=Bytes(), sizes=sizes, **settings)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(8, 64), st.integers(1, 60), st.integers(1, 20))
def test_windows_are_what_they_say(seed: int, length: int, train: int, validation: int) -> None:
    table = corpus(100)
    tokens = {d["id"]: [*d["text"].encode(), 256] for d in table.to_pylist()}
    made = cut(table, seed=seed, length=length, train=train, validation=validation)
    for split, wanted in (("train", train), ("validation", validation)):
        rows = made[split].to_pylist()
        assert [row["window"] for row in rows] == list(range(wanted))
        starts = defaultdict(list)
        for row in rows:
            assert row["tokens"] == tokens[row["document"]][row["start"] : row["start"] + length]
            assert len(row["tokens"]) == length
            starts[row["document"]].append(row["start"])
        for own in starts.values():
            assert all(b - a >= length for a, b in zip(sorted(own), sorted(own)[1:], strict=False))
    assert not set(made["train"]["document"].to_pylist()) & set(made["validation"]["document"].to_pylist())


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 45))
def test_no_document_gives_two_windows_before_every_other_gave_one(train: int) -> None:
    times = Counter(cut(corpus(100), train=train, validation=10)["train"]["document"].to_pylist())
    assert max(times.values()) == 1


def test_all_documents_are_used_when_all_are_needed() -> None:
    made = cut(corpus(50), train=200, validation=40)
    counts = counts_of(made["train"])
    assert counts["documents_unused"] == 0
    assert counts["documents"] + counts_of(made["validation"])["documents"] == 50


def test_the_same_arguments_cut_the_same_windows_and_row_order_does_not_matter() -> None:
    table = corpus(100)
    first, again = cut(table), cut(table.take(list(reversed(range(100)))))
    assert all(first[name].equals(again[name], check_metadata=True) for name in first)
    assert not first["train"].equals(cut(table, seed=4)["train"])


def test_a_document_keeps_its_side_when_others_are_added() -> None:
    few, many = cut(corpus(100), train=100, validation=25), cut(corpus(200), train=200, validation=50)
    assert not set(few["train"]["document"].to_pylist()) & set(many["validation"]["document"].to_pylist())


def test_windows_that_hold_a_prompt_are_dropped_and_counted() -> None:
    table = corpus(100)
    inside = cut(table)["train"]["tokens"].to_pylist()
    prompts = [{"id": f"p{n}", "text": bytes(tokens[4:28]).decode()} for n, tokens in enumerate(inside[:3])]
    made = cut(table, prompts=prompts, overlap=OverlapRule(ngram=16))
    counts = counts_of(made["train"])
    assert counts["windows_overlapping"] >= 3
    assert counts["windows"] == counts["windows_kept"] + counts["windows_overlapping"]
    assert {row["share"] for row in made["overlap"].to_pylist() if row["split"] == "train"} == {0.0}
    allowed = cut(table, prompts=prompts, overlap=OverlapRule(ngram=16, bound=1.0))
    assert max(allowed["overlap"]["share"].to_pylist()) == 1.0
    assert counts_of(allowed["train"])["windows_overlapping"] == 0


def test_short_documents_are_counted() -> None:
    short = [Document(f"short-{n}", f"tiny {n}", "s", "r", "MIT") for n in range(20)]
    table = documents_table([*documents(seed=1, count=60), *short], Counter())
    made = cut(table, train=150, validation=30)
    assert sum(counts_of(made[split])["documents_too_short"] for split in ("train", "validation")) == 20


def test_too_little_text_says_how_much_there_is() -> None:
    with pytest.raises(ConfigError, match=r"train: 5000 windows of 32 tokens are asked for, there are \d+ .*lower"):
        cut(corpus(50), train=5000)


def test_an_empty_corpus_says_so() -> None:
    with pytest.raises(ConfigError, match="there are 0"):
        cut(corpus(0))


@pytest.mark.parametrize("changed", [{"length": 1}, {"train": 0}, {"validation": -1}])
def test_sizes_out_of_range_are_refused(changed: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="too small"):
        cut(corpus(10), **changed)


def test_no_validation_windows_is_allowed() -> None:
    made = cut(corpus(50), validation=0)
    assert made["validation"].num_rows == 0
    assert counts_of(made["validation"])["documents"] == 0
