"""Answers in batches: each row as if alone, keyed when sampled, ended where it ends."""

import mlx.core as mx
import numpy as np
import pytest

from draftledger.decoding.arms import Arm, run_arm
from draftledger.decoding.loop import Limits
from draftledger.teacher.continuations import Answering, answer_all, answer_group, groups, temperatures_of
from targets import VOCABULARY, dense, hybrid

TARGETS = {"dense": dense, "hybrid": hybrid}


def prompts(count: int, length: int) -> np.ndarray:
    return np.random.default_rng(3).integers(1, VOCABULARY, size=(count, length), dtype=np.int32)


@pytest.mark.parametrize("target", TARGETS)
def test_greedy_rows_are_the_autoregressive_answers(target):
    model, rows = TARGETS[target](), prompts(3, 9)
    how = Answering(20, frozenset(), seed=1)
    found = answer_group(model, rows, temperatures=np.zeros(3, np.float32), name=0, how=how)
    for row, answer in zip(rows, found, strict=True):
        rounds = run_arm(model, Arm("ar", {"kind": "ar"}), row.tolist(), limits=Limits(20, frozenset()), noise=0)
        assert answer == [token for result in rounds for token in result.committed]
    assert len({token for answer in found for token in answer}) > 5  # not one token for ever


def test_an_answer_ends_with_its_end_id_and_others_go_on():
    model, rows = dense(), prompts(3, 9)
    free = answer_group(model, rows, temperatures=np.zeros(3, np.float32), name=0, how=Answering(24, frozenset(), 1))
    end = free[0][7]
    how = Answering(24, frozenset({end}), 1)
    cut = answer_group(model, rows, temperatures=np.zeros(3, np.float32), name=0, how=how)
    assert cut == [row[: row.index(end) + 1] if end in row else row for row in free]


def test_sampled_rows_are_keyed_and_greedy_ones_beside_them_stay():
    model, rows = dense(), prompts(4, 9)
    warm = np.array([0, 1, 0, 1], dtype=np.float32)
    first, again, other = (
        answer_group(model, rows, temperatures=warm, name=0, how=Answering(16, frozenset(), seed)) for seed in (1, 1, 2)
    )
    assert first == again
    assert (first[0], first[2]) == (other[0], other[2])
    assert first[1] != other[1]


def test_a_sampled_token_follows_the_targets_distribution():
    model, row = dense(), np.repeat(prompts(1, 5), 4000, axis=0)
    found = answer_group(model, row, temperatures=np.ones(4000, np.float32), name=0, how=Answering(1, frozenset(), 5))
    p = np.array(mx.softmax(model(mx.array(row[:1]))[0, -1].astype(mx.float32)))
    seen = np.bincount([tokens[0] for tokens in found], minlength=len(p))
    chi_square = float((((seen - 4000 * p) ** 2) / (4000 * p)).sum())
    assert chi_square < len(p) + 5 * np.sqrt(2 * len(p))


def test_groups_hold_every_prompt_once_at_one_length():
    lengths = [3, 5, 3, 3, 5, 9]
    made = groups(lengths, batch=2)
    assert sorted(n for group in made for n in group.members) == list(range(6))
    assert all(len({lengths[n] for n in group.members}) == 1 and len(group.members) <= 2 for group in made)
    assert [group.name for group in made] == list(range(len(made)))


QUESTIONS = [row.tolist() for length in (4, 6, 9) for row in prompts(3, length)]
WARM = temperatures_of(range(9), seed=1, share=0.5, temperature=0.8)


def answered(partial, chosen=None):
    chosen = groups([len(prompt) for prompt in QUESTIONS], batch=2) if chosen is None else chosen
    how = Answering(8, frozenset(), seed=1)
    return answer_all(dense(), QUESTIONS, chosen=chosen, warm=WARM, how=how, partial=partial)


def test_any_number_of_jobs_makes_the_same_answers(tmp_path):
    chosen = groups([len(prompt) for prompt in QUESTIONS], batch=2)
    whole = answered(tmp_path).to_pylist()
    assert [row["number"] for row in whole] == list(range(9))
    assert [row["prompt"] for row in whole] == QUESTIONS
    parts = []
    for job in range(3):
        (tmp_path / str(job)).mkdir()
        parts += answered(tmp_path / str(job), chosen[job::3]).to_pylist()
    assert sorted(parts, key=lambda row: row["number"]) == whole
    assert answered(tmp_path, []).num_rows == 0


def test_a_killed_job_goes_on_where_it_was(tmp_path, monkeypatch):
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    whole, asked, stop = answered(tmp_path / "whole"), [], 3

    def counted(*args, name, **rest):
        if len(asked) == stop:
            raise KeyboardInterrupt
        asked.append(name)
        return answer_group(*args, name=name, **rest)

    monkeypatch.setattr("draftledger.teacher.continuations.answer_group", counted)
    with pytest.raises(KeyboardInterrupt):
        answered(tmp_path / "killed")
    stop = 99
    assert answered(tmp_path / "killed").equals(whole)
    assert asked == list(range(len(asked)))  # no group twice


def test_temperatures_depend_on_the_number_alone_and_keep_to_their_share():
    drawn = temperatures_of(range(4000), seed=1, share=0.3, temperature=0.8)
    assert set(drawn.tolist()) == {0.0, np.float32(0.8).item()}
    assert 0.27 < (drawn > 0).mean() < 0.33
    assert (temperatures_of([7, 3], seed=1, share=0.3, temperature=0.8) == drawn[[7, 3]]).all()
