"""Latin squares: balance, keys and rotation."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftledger.errors import ConfigError
from draftledger.measurement.schedule import latin_square, order

COUNTS = st.integers(1, 12)
KEYS = st.integers(0, 2**32)


def names(count: int) -> list[str]:
    return [f"arm{number}" for number in range(count)]


@given(COUNTS, KEYS)
def test_every_arm_stands_once_in_each_row_and_at_each_position(count: int, key: int) -> None:
    square = latin_square(names(count), key)
    assert all(sorted(line) == sorted(names(count)) for line in [*square, *map(list, zip(*square, strict=True))])


@given(st.integers(1, 6).map(lambda half: 2 * half), KEYS)
def test_every_arm_follows_every_other_once_when_their_number_is_even(count: int, key: int) -> None:
    follows = [pair for row in latin_square(names(count), key) for pair in pairwise(row)]
    assert len(set(follows)) == len(follows) == count * (count - 1)


@given(COUNTS, KEYS)
def test_sessions_start_at_different_rows_and_consecutive_prompts_fill_the_square(count: int, key: int) -> None:
    starts = {tuple(order(0, session, names(count), key)) for session in range(count)}
    rows = {tuple(order(prompt, 1, names(count), key)) for prompt in range(count)}
    assert len(starts) == len(rows) == count


def test_two_short_sessions_of_an_even_square_do_not_share_rows() -> None:
    first, second = ({tuple(order(p, session, names(8), 3)) for p in range(3)} for session in (0, 1))
    assert not first & second


def test_the_key_alone_decides() -> None:
    assert latin_square(names(8), 1) == latin_square(names(8), 1)
    assert latin_square(names(8), 1) != latin_square(names(8), 2)
    assert latin_square(["b", "a"], 0) in ([["a", "b"], ["b", "a"]], [["b", "a"], ["a", "b"]])


@pytest.mark.parametrize("arms", [[], ["ar", "ar"]])
def test_impossible_arms_are_refused(arms: list[str]) -> None:
    with pytest.raises(ConfigError, match="distinct"):
        latin_square(arms, 0)
