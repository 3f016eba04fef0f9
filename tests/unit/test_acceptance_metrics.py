"""Definitions of acceptance: identities that every trace obeys, and figures worked out by hand."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftledger.errors import DraftledgerError
from draftledger.measurement import acceptance_metrics as metrics
from draftledger.measurement.acceptance_metrics import Rounds, loop_fraction, pooled, repeated_positions


def trace(offered: list[int], accepted: list[int], *, free: int = 0, forwards: int = 2) -> Rounds:
    """A prefill row and untruncated rounds."""
    return Rounds(
        index=np.arange(-1, len(offered)),
        offered=np.array([0, *offered]),
        accepted=np.array([0, *accepted]),
        emitted=np.array([1, *(a + 1 + free for a in accepted)]),
        forwards=np.array([1, *[forwards] * len(offered)]),
    )


@st.composite
def traces(draw: st.DrawFn, *, fixed: bool = False) -> Rounds:
    """Rounds that offer up to 6 tokens each, or the same number in every round."""
    count = draw(st.integers(1, 30))
    k = draw(st.integers(1, 6))
    offered = [k if fixed else draw(st.integers(0, 6)) for _ in range(count)]
    return trace(offered, [draw(st.integers(0, n)) for n in offered], free=draw(st.integers(0, 1)))


@given(traces(fixed=True))
def test_mean_accepted_is_the_sum_of_joint_survival_when_every_round_offers_k(rounds: Rounds) -> None:
    k = int(rounds.offered.max())
    joint = [pooled(metrics.survival_joint(rounds, slot)) for slot in range(1, k + 1)]
    assert pooled(metrics.accepted_per_round(rounds)) == pytest.approx(sum(joint))
    assert pooled(metrics.acceptance_rate(rounds)) == pytest.approx(sum(joint) / k)


@given(traces(fixed=True))
def test_joint_survival_is_the_product_of_conditional_survival(rounds: Rounds) -> None:
    product = 1.0
    for slot in range(1, int(rounds.offered.max()) + 1):
        conditional = pooled(metrics.survival_conditional(rounds, slot))
        product *= conditional if conditional is not None else 0.0
        assert pooled(metrics.survival_joint(rounds, slot)) == pytest.approx(product)


@given(traces())
def test_sums_agree_for_any_draft_length(rounds: Rounds) -> None:
    slots = range(1, int(rounds.offered.max()) + 1)
    assert sum(metrics.survival_joint(rounds, j)[0].sum() for j in slots) == rounds.accepted.sum()
    assert sum(metrics.survival_joint(rounds, j)[1].sum() for j in slots) == rounds.offered.sum()
    per_round = pooled(metrics.tokens_per_round(rounds))
    free = rounds.emitted[1] - rounds.accepted[1] - 1
    assert per_round == pytest.approx(pooled(metrics.accepted_per_round(rounds)) + 1 + free)


@pytest.mark.parametrize(
    ("tokens", "rounds", "forwards", "expected"),
    [
        (128, 64, 2, 0.9922),
        (128, 49, 2, 1.2929),
        (128, 43, 2, 1.4713),
        (128, 42, 2, 1.5059),
        (128, 40, 2, 1.5802),
        (128, 32, 3, 1.3196),
        (128, 27, 5, 0.9412),
    ],
)
def test_tokens_per_forward_is_tokens_over_one_plus_forwards_of_rounds(
    tokens: int, rounds: int, forwards: int, expected: float
) -> None:
    emitted = np.zeros(rounds + 1, int)
    emitted[0], emitted[1] = 1, tokens - 1
    zeros = np.zeros(rounds + 1, int)
    cost = np.array([1] + [forwards] * rounds)
    made = Rounds(index=np.arange(-1, rounds), offered=zeros, accepted=zeros, emitted=emitted, forwards=cost)
    assert pooled(metrics.tokens_per_forward(made)) == pytest.approx(expected, abs=5e-5)


def test_worked_example() -> None:
    rounds = trace([4, 4, 0, 2], [4, 1, 0, 0])
    assert pooled(metrics.acceptance_rate(rounds)) == 5 / 10
    assert pooled(metrics.accepted_per_round(rounds)) == 5 / 4
    assert pooled(metrics.tokens_per_round(rounds)) == 9 / 4
    assert pooled(metrics.drafting_share(rounds)) == 3 / 4
    assert pooled(metrics.survival_joint(rounds, 2)) == 1 / 3
    assert pooled(metrics.survival_conditional(rounds, 2)) == 1 / 2
    assert pooled(metrics.survival_joint(rounds, 5)) is None


def test_truncation_lowers_tokens_per_round_and_not_acceptance() -> None:
    whole = trace([4, 4], [4, 4])
    cut = Rounds(whole.index, whole.offered, whole.accepted, whole.emitted - [0, 0, 3], whole.forwards)
    assert pooled(metrics.acceptance_rate(cut)) == 1
    assert pooled(metrics.tokens_per_round(cut)) == 3.5


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(1, 5))
def test_loop_fraction_agrees_with_a_search(tokens: list[int], ngram: int) -> None:
    grams = [tuple(tokens[i : i + ngram]) for i in range(len(tokens) - ngram + 1)]
    expected = sum(gram in grams[:place] for place, gram in enumerate(grams))
    assert repeated_positions(np.array(tokens, int), ngram) == expected
    assert loop_fraction(np.array(tokens, int), ngram) == expected / max(len(tokens), 1)


def table(**changes: list) -> pa.Table:
    columns = {"round": [-1, 0], "free": [0, 0], "draft": [[], [5, 6]], "offered": [0, 2], "accepted": [0, 1]}
    columns |= {
        "committed": [[3], [5, 9]],
        "free_accepted": [0, 0],
        "draft_forwards": [0, 1],
        "verify_forwards": [1, 1],
    }
    return pa.table(columns | {"replay_forwards": [0, 1]} | changes)


def test_rounds_are_read_from_a_table() -> None:
    rounds = Rounds.from_table(table())
    assert rounds.forwards.tolist() == [1, 3]
    assert rounds.emitted.tolist() == [1, 2]
    assert pooled(metrics.tokens_per_forward(rounds)) == 3 / 4


def test_a_round_that_lost_its_free_token_tests_no_slot() -> None:
    lost = Rounds.from_table(table(free=[0, 1], offered=[0, 0], accepted=[0, 0]))
    assert pooled(metrics.survival_joint(lost, 1)) is None
    assert pooled(metrics.accepted_per_round(lost)) == 0


@pytest.mark.parametrize(
    "changes",
    [{"accepted": [0, 3]}, {"free": [0, 1]}, {"accepted": [0, None]}, {"offered": [1, 2], "draft": [[4], [5, 6]]}],
)
def test_counts_that_do_not_close_are_refused(changes: dict[str, list]) -> None:
    with pytest.raises(DraftledgerError, match="decode that arm again"):
        Rounds.from_table(table(**changes))
