"""The generated grammar: reproducible, right, and such that a greedy reader of it keeps moving."""

import hashlib
import re
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftledger.corpus.document import Document
from draftledger.corpus.synthetic import CITIES, ITEMS, KINDS, NAMES, documents

ORDERS = (16, 12, 8, 5, 3, 2, 1)


def kind_of(document: Document) -> str:
    return document.id.split("/")[1].split("-")[0]


def texts(kind: str, *, count: int = 400) -> list[str]:
    return [document.text for document in documents(seed=3, count=count) if kind_of(document) == kind]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 40))
def test_documents_are_short_ascii_and_take_turns(seed: int, count: int) -> None:
    made = list(documents(seed=seed, count=count))
    assert [kind_of(document) for document in made] == [list(KINDS)[n % len(KINDS)] for n in range(count)]
    assert all(800 <= len(document.text) <= 1600 and document.text.isascii() for document in made)
    assert len({document.id for document in made}) == count


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 20), st.integers(0, 20))
def test_a_document_depends_on_seed_and_index_only(seed: int, count: int, more: int) -> None:
    assert list(documents(seed=seed, count=count)) == list(documents(seed=seed, count=count + more))[:count]


def test_the_text_is_the_same_on_every_machine() -> None:
    seal = hashlib.sha256("".join(document.text for document in documents(seed=7, count=50)).encode())
    assert seal.hexdigest() == "c9b177f47c53ddaab8332eaf167b1257451133d7813aea783a3f91780d4c9618"


def test_sums_are_right() -> None:
    for text in texts("sum"):
        for left, right, total in re.findall(r"(\d+) plus (\d+) makes (\d+), says", text):
            assert int(left) + int(right) == int(total)


def test_number_agrees_in_stories_and_cities_follow_names() -> None:
    sentence = re.compile(r"(\w+) has (\d) \w+ (\w+?)(s?), which (is|are) (?:from (\w+)|\w+ and new)\.\n")
    for text in texts("story"):
        assert sentence.sub("", text) == ""
        for name, amount, thing, plural, verb, city in sentence.findall(text):
            assert thing in ITEMS
            assert (plural == "s") == (amount != "1") == (verb == "are")
            assert not city or CITIES.index(city) == NAMES.index(name)


def test_code_compiles_and_does_what_its_name_says() -> None:
    expected = {"add": lambda x, n: x + n, "sub": lambda x, n: x - n, "mul": lambda x, n: x * n}
    for text in texts("code", count=100):
        scope: dict = {}
        exec(compile(text, "code", "exec"), scope)
        for name, function in scope.items():
            if name != "__builtins__":
                verb, constant = name.split("_")
                assert function(5) == expected[verb](5, int(constant))


def test_few_documents_repeat() -> None:
    made = [document.text for document in documents(seed=1, count=2000)]
    assert len(set(made)) > 0.95 * len(made)


def back_off_model(corpus: list[str]) -> dict[str, Counter[str]]:
    """Count the next character after every context whose length is in ORDERS."""
    model: dict[str, Counter[str]] = defaultdict(Counter)
    for text in corpus:
        for at in range(1, len(text)):
            for order in ORDERS:
                if order <= at:
                    model[text[at - order : at]][text[at]] += 1
    return model


def greedy(model: dict[str, Counter[str]], prompt: str, *, length: int) -> str:
    text = prompt
    for _ in range(length):
        context = next(text[-n:] for n in ORDERS if len(text) >= n and text[-n:] in model)
        text += min(model[context].items(), key=lambda item: (-item[1], item[0]))[0]
    return text[len(prompt) :]


@pytest.fixture(scope="module")
def model() -> dict[str, Counter[str]]:
    return back_off_model([document.text for document in documents(seed=5, count=250)])


def test_a_greedy_answer_of_a_simple_model_is_varied(model: dict[str, Counter[str]]) -> None:
    """A back-off character model stands in for the tiny target, whose own answers a run reports."""
    prompts = [document.text[:30] for document in documents(seed=6, count=100)]
    distinct = [len(set(greedy(model, prompt, length=64))) for prompt in prompts]
    assert sum(number >= 12 for number in distinct) >= 0.8 * len(distinct)


def test_the_text_is_partly_predictable_and_partly_open(model: dict[str, Counter[str]]) -> None:
    right = total = 0
    for document in documents(seed=6, count=20):
        for at in range(30, len(document.text)):
            right += greedy(model, document.text[:at], length=1) == document.text[at]
            total += 1
    assert 0.75 < right / total < 0.98
