"""A seeded grammar whose text a byte-level model learns in seconds and continues without looping.

Every kind counts or walks through a fixed cycle of words, so the likeliest continuation keeps moving, and
says a dozen different tokens before it says the same thing again, so that a model which misses the count
does not loop closely; between the predictable stretches stand open choices, which a drafter must guess.
"""

from collections.abc import Callable, Iterator
from itertools import count as count_up

import numpy as np

from draftledger.corpus.document import Document

NAMES = ("Ada", "Ben", "Cora", "Dan", "Eva", "Finn", "Gus", "Hana", "Ivo", "June", "Kai", "Lena")
ITEMS = ("axe", "bell", "cup", "drum", "flag", "goat", "hat", "jug", "kite", "lamp", "map", "net")
CITIES = ("Arles", "Bern", "Cork", "Delft", "Essen", "Fano", "Ghent", "Hull", "Ibiza", "Jena", "Kiel", "Lyon")
COLOURS = ("red", "green", "blue", "white", "black", "pink")
SIZES = ("small", "plain", "large")
VERBS = (("add", "+"), ("sub", "-"), ("mul", "*"))
SHORTEST, LONGEST = 800, 1600

Rng = np.random.Generator
Lines = Iterator[str]


def documents(*, seed: int, count: int) -> Iterator[Document]:
    """Yield `count` documents of 800–1600 characters; document i depends only on (seed, i).

    Kinds take turns in the order of `KINDS`, and the kind stands in the id: `synthetic/list-000000`.
    """
    kinds = tuple(KINDS)
    for index in range(count):
        kind = kinds[index % len(kinds)]
        rng = np.random.Generator(np.random.Philox(key=np.array([seed, index], dtype=np.uint64)))
        yield Document(
            id=f"synthetic/{kind}-{index:06d}",
            text=_fill(KINDS[kind](rng), length=int(rng.integers(SHORTEST, LONGEST - 80))),
            source="synthetic",
            revision=f"seed-{seed}",
            licence="CC0-1.0",
        )


def _fill(lines: Lines, *, length: int) -> str:
    text = ""
    while len(text) < length:
        text += next(lines)
    return text


def _cycle(words: tuple[str, ...], start: int) -> str:
    return words[start % len(words)]


def _pick(rng: Rng, words: tuple[str, ...]) -> str:
    return words[int(rng.integers(len(words)))]


def _list(rng: Rng) -> Lines:
    """A numbered list in word order; some items have a nested list of colours in cycle order."""
    yield "List of things:\n"
    start, first, colour = (int(n) for n in rng.integers(0, 12, size=3))
    for step in count_up():
        owner = f"{_cycle(NAMES, start + step)} in {_cycle(CITIES, start + step)}"
        yield f"{first + step}. {_pick(rng, SIZES)} {_cycle(ITEMS, start + step)} of {owner}\n"
        if rng.random() < 0.3:
            yield "".join(f"   {mark}) {_cycle(COLOURS, colour + n)}\n" for n, mark in enumerate("abc"))
            colour += 3


def _record(rng: Rng) -> Lines:
    """Key-value records: the number counts, the city follows from the name, the colour is open."""
    number, who = int(rng.integers(10, 80)), int(rng.integers(12))
    for step in count_up():
        name, city = _cycle(NAMES, who + step), _cycle(CITIES, who + step)
        yield f"id: {number + step}\nname: {name}\ncity: {city}\ncolour: {_pick(rng, COLOURS)}\n\n"


def _sum(rng: Rng) -> Lines:
    """An addition table with right answers: the second number counts, then the first one does."""
    left, right, who = int(rng.integers(2, 30)), int(rng.integers(10)), int(rng.integers(12))
    for step in count_up():
        told = f"{_cycle(NAMES, who + step)} to {_cycle(NAMES, who + step + 1)}"
        yield f"{left} plus {right} makes {left + right}, says {told}.\n"
        left, right = (left + 1, 0) if right == 9 else (left, right + 1)


def _story(rng: Rng) -> Lines:
    """Sentences with agreement in number: people and things in cycle order, amounts and colours open."""
    who, what = int(rng.integers(12)), int(rng.integers(12))
    for step in count_up():
        amount = int(rng.integers(1, 5))
        thing = _cycle(ITEMS, what + step) + ("s" if amount > 1 else "")
        verb = "are" if amount > 1 else "is"
        kind = f"from {_cycle(CITIES, who + step)}" if rng.random() < 0.7 else f"{_pick(rng, SIZES)} and new"
        yield f"{_cycle(NAMES, who + step)} has {amount} {_pick(rng, COLOURS)} {thing}, which {verb} {kind}.\n"


def _code(rng: Rng) -> Lines:
    """Small functions whose names, operators and constants count together."""
    constant, verb = int(rng.integers(2, 60)), int(rng.integers(len(VERBS)))
    for step in count_up():
        name, sign = VERBS[(verb + step) % len(VERBS)]
        yield f"def {name}_{constant + step}(x):\n    return x {sign} {constant + step}\n\n"


KINDS: dict[str, Callable[[Rng], Lines]] = {
    "list": _list,
    "record": _record,
    "sum": _sum,
    "story": _story,
    "code": _code,
}
