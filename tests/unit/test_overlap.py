"""Overlap between prompts and windows against a plain definition."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftledger.corpus.overlap import OverlapRule, ngrams, overlap_table, prompt_index
from draftledger.errors import ConfigError


class Letters:
    """One token a character, a token 0 at the end."""

    eos_ids = frozenset({0})

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]


def index_of(texts: Sequence[str], *, ngram: int):
    prompts = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
    return prompt_index(prompts, tokenizer=Letters(), ngram=ngram)


def plain_share(prompt: str, window: str, *, ngram: int) -> float:
    length = min(ngram, len(prompt))
    grams = {prompt[at : at + length] for at in range(len(prompt) - length + 1)} if prompt else set()
    return sum(gram in window for gram in grams) / len(grams) if grams else 0.0


letters = st.text(alphabet="ab", max_size=12)


@settings(deadline=None)  # the first table imports pandas
@given(st.lists(letters, max_size=4), letters, st.integers(1, 6))
def test_shares_agree_with_substring_search(prompts: list[str], window: str, ngram: int) -> None:
    index = index_of(prompts, ngram=ngram)
    shares = [plain_share(prompt, window, ngram=ngram) for prompt in prompts]
    assert index.worst_share(Letters().encode(window)) == max(shares, default=0.0)
    table = overlap_table(index, {"train": [Letters().encode(window)]})
    assert table["share"].to_pylist() == shares


@settings(deadline=None)
@given(letters, st.lists(letters, max_size=4))
def test_several_windows_share_what_any_of_them_shares(prompt: str, windows: list[str]) -> None:
    index = index_of([prompt], ngram=3)
    row = overlap_table(index, {"train": [Letters().encode(window) for window in windows]}).to_pylist()[0]
    seen = set().union(*(ngrams(Letters().encode(window), min(3, len(prompt) or 1)) for window in windows))
    assert row["shared"] == len(seen & index.grams["0"])


def test_a_short_prompt_counts_as_one_ngram() -> None:
    index = index_of(["abc"], ngram=8)
    assert index.worst_share(Letters().encode("xxabcxx")) == 1.0
    assert index.worst_share(Letters().encode("xxabxcx")) == 0.0


def test_the_table_has_a_row_for_every_split_and_prompt() -> None:
    rows = overlap_table(index_of(["ab", "cd"], ngram=2), {"train": [[97, 98]], "validation": []}).to_pylist()
    assert [(row["split"], row["prompt"], row["share"]) for row in rows] == [
        ("train", "0", 1.0),
        ("train", "1", 0.0),
        ("validation", "0", 0.0),
        ("validation", "1", 0.0),
    ]


@pytest.mark.parametrize(("ngram", "bound"), [(0, 0.0), (8, -0.1), (8, 1.1)])
def test_a_rule_out_of_range_is_refused(ngram: int, bound: float) -> None:
    with pytest.raises(ConfigError, match="overlap rule"):
        OverlapRule(ngram=ngram, bound=bound)
