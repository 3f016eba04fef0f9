"""Windows from answers: supervised on the answer, every question accounted for, evaluation prompts kept out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftledger.corpus.answers import REASONS, AnswerRule, answer_windows, loop_share
from draftledger.corpus.overlap import OverlapRule
from draftledger.errors import ConfigError
from draftledger.provenance.tables import counts_of

RULE = AnswerRule(length=16, shortest=4, loop_ngram=3, loops=0.5)
PAD = 0


class Letters:
    """One token a character."""

    eos_ids = frozenset({PAD})

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]


def made(rows, *, train=2, validation=1, rule=RULE, prompts=(), bound=0.0):
    sizes = {"train": train, "validation": validation}
    asked = [{"id": p, "text": p} for p in prompts]
    overlap = OverlapRule(4, bound)
    return answer_windows(rows, tokenizer=Letters(), sizes=sizes, seed=1, prompts=asked, rule=rule, overlap=overlap)


def row(number: int, prompt: list[int], answer: list[int]) -> dict:
    return {"number": number, "prompt": prompt, "answer": answer}


def plain(count: int, length: int = 8) -> list[dict]:
    return [row(n, [1, 2, 3], [100 * n + t + 10 for t in range(length)]) for n in range(count)]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 20)), min_size=20, max_size=40))
def test_every_window_is_prompt_then_answer_then_padding(shapes) -> None:
    rows = [row(n, [7] * p, [1000 * n + t + 10 for t in range(a)]) for n, (p, a) in enumerate(shapes)]
    try:
        tables = made(rows, train=3, validation=1)
    except ConfigError:
        return
    for side in ("train", "validation"):
        for window in tables[side].to_pylist():
            source = rows[int(window["document"].removeprefix("question/"))]
            spoken = window["tokens"][: window["valid"]]
            assert spoken == (source["prompt"] + source["answer"])[:16]
            assert window["tokens"][window["valid"] :] == [PAD] * (16 - window["valid"])
            assert window["first"] == len(source["prompt"])
            assert window["valid"] - window["first"] >= RULE.shortest


def test_counts_close_and_each_reason_is_told() -> None:
    rows = plain(60)
    rows += [row(100 + n, [1], [5, 6, 7] * 4) for n in range(20)]  # loops
    rows += [row(200 + n, [1], [9, 8]) for n in range(20)]  # short
    rows += [row(300 + n, [1], [21, 22, 23, 24, 25, 26]) for n in range(20)]  # alike
    tables = made(rows, train=40, validation=6)
    counts = [counts_of(tables[side]) for side in ("train", "validation")]
    assert sum(c["questions"] for c in counts) == len(rows)
    assert all(c["questions"] == sum(c[name] for name in ("windows", *REASONS)) for c in counts)


def test_a_shortage_names_every_reason() -> None:
    rows = [row(n, [1], [5, 6, 7] * 4) for n in range(9)] + [row(10 + n, [1], [9]) for n in range(9)]
    with pytest.raises(ConfigError, match=r"9 looped, 9 short|looped, \d+ short"):
        made(rows, train=5, validation=0)


def test_what_repeats_an_evaluation_prompt_is_left_out() -> None:
    rows = [
        *plain(30),
        *(row(50 + n, Letters().encode("tell me a tale"), [n + 500] * 1 + list(range(200, 206))) for n in range(10)),
    ]
    tables = made(rows, train=20, validation=4, prompts=["tell me a tale"])
    kept = {int(w["document"][-7:]) for side in ("train", "validation") for w in tables[side].to_pylist()}
    assert kept <= set(range(30))
    assert not any(tables["overlap"]["shared"].to_pylist())


def test_a_question_keeps_its_side_whatever_else_is_asked() -> None:
    few, many = made(plain(40), train=10, validation=3), made(plain(80), train=10, validation=3)
    assert few["train"].equals(many["train"])
    assert not set(few["train"]["document"].to_pylist()) & set(few["validation"]["document"].to_pylist())


def test_too_few_answers_are_told_with_the_reasons() -> None:
    with pytest.raises(ConfigError, match="train: 50 windows are asked for"):
        made(plain(20), train=50, validation=1)
    with pytest.raises(ConfigError, match="answer rule"):
        AnswerRule(length=8, shortest=8, loop_ngram=3, loops=0.5)


def test_loop_share_counts_what_comes_back() -> None:
    assert loop_share([1, 2, 3, 4, 5], 3) == 0
    assert loop_share([1, 1, 1, 1, 1], 3) == pytest.approx(2 / 3)
    assert loop_share([1, 2], 3) == 0
