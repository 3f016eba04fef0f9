"""Answers end where they should: at an id, at a stop string however it falls over blocks, or at the length."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftledger.decoding.stopping import Limits, before_stop, cut
from draftledger.errors import ConfigError

# Byte-level pieces: several characters, parts of a character, a special token without text.
PIECES = [b"a", b"b", b"ab", b" ", b"\xc3", b"\xa9", b"\xf0\x9f", b"\x98\x80", b"", b"ba\xc3"]
EOS = len(PIECES)


def text(tokens) -> str:
    return b"".join(PIECES[token] for token in tokens if token != EOS).decode("utf-8", errors="replace")


def naive(answer: list[int], limits: Limits) -> tuple[list[int], str]:
    """Token by token, the whole text each time."""
    for count, token in enumerate(answer, start=1):
        if any(stop in text(answer[:count]) for stop in limits.stop):
            return answer[:count], "stop"
        if token in limits.eos_ids:
            return answer[:count], "eos"
        if count == limits.new_tokens:
            return answer[:count], "length"
    raise AssertionError("the answer is longer than any limit")


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, EOS), min_size=30, max_size=40),
    st.lists(st.integers(1, 9), min_size=40, max_size=40),
    st.lists(st.sampled_from(["ab", "é", "😀", "aab b", "b a", "abababababab"]), max_size=2),
    st.integers(1, 30),
    st.booleans(),
)
def test_blocks_of_any_width_are_cut_where_single_tokens_would_be(tokens, widths, stop, count, eos):
    limits = Limits(count, frozenset({EOS} if eos else ()), tuple(stop), text)
    answer, told = [], None
    for width in widths:
        block = tokens[len(answer) : len(answer) + width]
        committed, told = cut(block, limits, answer)
        answer += committed
        if told:
            break
    expected, reason = naive(tokens, limits)
    assert (answer, told) == (expected, reason)
    if told == "stop":
        assert before_stop(text(answer), limits.stop) == min((text(answer).split(each, 1)[0] for each in stop), key=len)


def test_only_the_end_of_a_long_answer_is_turned_into_text():
    seen = []

    def counted(tokens) -> str:
        seen.append(len(tokens))
        return text(tokens)

    limits = Limits(10_000, frozenset(), ("bb",), counted)
    assert cut([1, 1], limits, [0] * 5000) == ((1, 1), "stop")
    assert max(seen) < 40
    assert cut([8, 1], limits, [*[0] * 3000, 1, *[8] * 500]) == ((8, 1), "stop")


def test_text_without_a_stop_string_is_kept_whole():
    assert before_stop("abc", ("x", "bcd")) == "abc"
    assert before_stop("abc", ()) == "abc"
    assert before_stop("a\n\nb", ("b", "\n")) == "a"


def test_limits_that_cannot_be_met_are_refused():
    for bad in ({"new_tokens": 0}, {"stop": ("",), "text": text}, {"stop": ("a",)}):
        with pytest.raises(ConfigError):
            Limits(**{"new_tokens": 1, "eos_ids": frozenset(), **bad})
