"""Speculative sampling emits the target's own law: by enumeration where that is small, by chi-square beyond."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from draftledger.decoding.acceptance import greedy, sampled, verdict
from draftledger.decoding.loop import Limits, decode
from draftledger.decoding.sampling import Sampling, distribution, draw, uniforms
from draftledger.drafters.ar import Silent
from draftledger.drafters.base import Proposal, nothing
from draftledger.models.state import TargetState

Law = dict[tuple[int, ...], float]
Rule = Callable[..., tuple[mx.array, mx.array]]
KINDS = ["dense", "equal", "conditional", "sparse", "one-hot"]
FILTERS = [Sampling(1.0), Sampling(0.7, top_p=0.8), Sampling(1.3, top_k=2), Sampling(1.0, top_p=0.9, min_p=0.2)]


class World:
    """A target and a drafter whose distributions are random functions of what was emitted."""

    def __init__(self, kind: str, size: int, sampling: Sampling, *, dtype: mx.Dtype = mx.float32) -> None:
        self.kind, self.size, self.sampling, self.dtype = kind, size, sampling, dtype

    def p(self, prefix: tuple[int, ...]) -> mx.array:
        return self._rows("p", prefix)

    def _rows(self, name: str, prefix: tuple[int, ...]) -> mx.array:
        key = [ord(name), *(token + 1 for token in prefix)]
        logits = np.random.default_rng(key).normal(size=(1, self.size)).astype(np.float32) * 1.5
        return distribution(mx.array(logits).astype(self.dtype), self.sampling)

    def drafts(self, prefix: tuple[int, ...], k: int) -> Iterator[tuple[Proposal, float]]:
        """Yield every draft that the drafter may make, and how likely it is."""
        if self.kind == "one-hot":
            tokens = mx.argmax(self._rows("q", prefix), axis=-1).tolist() * k
            yield Proposal(mx.array(tokens, dtype=mx.int32)), 1.0
            return
        for tokens in product(range(self.size), repeat=k):
            rows = [self._q(prefix, tokens[:place]) for place in range(k)]
            likely = float(np.prod([row[0, token].item() for row, token in zip(rows, tokens, strict=True)]))
            if likely > 0:
                yield self._proposal(mx.concatenate(rows), tokens), likely

    def _q(self, prefix: tuple[int, ...], before: tuple[int, ...]) -> mx.array:
        if self.kind == "equal":
            return self.p((*prefix, *before))
        seen = before if self.kind == "conditional" else tuple(99 for _ in before)
        q = self._rows("q", (*prefix, *seen))
        if self.kind == "sparse":
            q = mx.where(mx.arange(self.size) == len(before), 0, q + 0.05)
        return q / q.sum()

    def _proposal(self, q: mx.array, tokens: tuple[int, ...]) -> Proposal:
        ids = mx.array(tokens, dtype=mx.int32)
        if self.kind != "sparse":
            return Proposal(ids, q)
        columns = [[i for i in reversed(range(self.size)) if i != row] for row in range(len(tokens))]
        candidates = mx.array(columns, dtype=mx.int32)
        return Proposal(ids, mx.take_along_axis(q, candidates, axis=1), candidates)


def round_law(world: World, prefix: tuple[int, ...], k: int, rule: Rule) -> Law:
    """The law of what one round emits, from what the rule does: its thresholds are found by bisection."""
    law: Law = defaultdict(float)
    for proposal, likely in world.drafts(prefix, k):
        tokens = tuple(proposal.tokens.tolist())
        p = mx.concatenate([world.p((*prefix, *tokens[:place])) for place in range(k + 1)])
        for kept in range(k + 1):
            passes = threshold(rule, p, proposal, kept) if kept < k else 0.0
            if passes < 1:
                weights = np.array(rule(p, proposal, _tests(k, kept, 1 - 2.0**-24))[1])[0].astype(np.float64)
                for token, share in enumerate(weights / weights.sum()):
                    law[(*tokens[:kept], token)] += likely * (1 - passes) * share
            likely *= passes
            if not likely:
                break
    return law


def threshold(rule: Rule, p: mx.array, proposal: Proposal, slot: int) -> float:
    """The uniform below which the rule keeps the draft token of a slot that is reached."""
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        kept = rule(p, proposal, _tests(proposal.tokens.size, slot, middle))[0].item()
        low, high = (middle, high) if kept > slot else (low, middle)
    return (low + high) / 2 if low > 0 and high < 1 else round(low)


def _tests(k: int, slot: int, uniform: float) -> np.ndarray:
    return np.array([*[0.0] * slot, *[uniform] * (k - slot)])


def completed(world: World, law: Law, length: int) -> np.ndarray:
    """The law of the first tokens [V, V, ...] when the target itself goes on after what was emitted."""
    found = np.zeros((world.size,) * length)
    for tokens, likely in law.items():
        tail = length - len(tokens)
        for rest in product(range(world.size), repeat=max(tail, 0)):
            share = likely
            for place, token in enumerate(rest):
                share *= p_of(world, (*tokens, *rest[:place]))[token]
            found[(*tokens, *rest)[:length]] += share
    return found


def p_of(world: World, prefix: tuple[int, ...]) -> np.ndarray:
    return np.array(world.p(prefix))[0].astype(np.float64)


def error(world: World, k: int, rule: Rule, *, rounds: int = 1) -> float:
    """The total variation between what `rounds` rounds emit and the target's law of as many tokens."""
    law: Law = {(): 1.0}
    for _ in range(rounds):
        grown: Law = defaultdict(float)
        for prefix, likely in law.items():
            for tokens, share in round_law(world, prefix, k, rule).items():
                grown[(*prefix, *tokens)] += likely * share
        law = grown
    length = rounds * (k + 1)
    return float(np.abs(completed(world, law, length) - completed(world, {(): 1.0}, length)).sum() / 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_one_rounds_law_is_the_targets(kind, filters):
    assert error(World(kind, 3, filters), 2, verdict) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_two_rounds_law_is_the_targets(kind):
    assert error(World(kind, 3, FILTERS[1]), 1, verdict, rounds=2) < 2e-5


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_larger_vocabulary_and_bfloat16_logits_change_nothing(kind):
    assert error(World(kind, 8, FILTERS[1], dtype=mx.bfloat16), 1, verdict) < 1e-5


def test_eight_ids_and_two_slots():
    assert error(World("conditional", 8, Sampling(1.0, top_k=5)), 2, verdict) < 1e-5


def from_p(p, proposal, uniform):
    """Draws the correction from p instead of from what p exceeds q by."""
    kept, _ = verdict(p, proposal, uniform)
    return kept, mx.take(p, kept, axis=0)


def forgets_q(p, proposal, uniform):
    """Tests uniform < p, as if every draft token were certain, but corrects by q."""
    kept, _ = verdict(p, replace(proposal, q=None, candidates=None), uniform)
    return kept, verdict(p, proposal, _tests(len(uniform), kept.item(), 1 - 2.0**-24))[1]


def swaps_columns(p, proposal, uniform):
    """Reads the candidates' probabilities in the wrong order."""
    order = None if proposal.candidates is None else proposal.candidates[:, ::-1]
    return verdict(p, replace(proposal, candidates=order), uniform)


def lenient(p, proposal, uniform):
    """Keeps a draft token a little too often."""
    return verdict(p, proposal, uniform * 0.9)


def wrong_row(p, proposal, uniform):
    """Draws the last token from the row before the right one when all draft tokens were kept."""
    kept, weights = verdict(p, proposal, uniform)
    return kept, p[-2:-1] if kept.item() == proposal.tokens.size else weights


@pytest.mark.parametrize(
    ("rule", "kind"),
    [(from_p, "dense"), (from_p, "one-hot"), (forgets_q, "dense"), (swaps_columns, "sparse")]
    + [(lenient, kind) for kind in ("dense", "sparse", "one-hot")]
    + [(wrong_row, "conditional")],
)
def test_the_enumeration_fails_for_a_wrong_rule(rule, kind):
    assert error(World(kind, 4, FILTERS[0]), 2, rule) > 1e-3


def test_where_rounding_leaves_no_residual_the_target_itself_is_drawn_from():
    p = mx.array([[0.25, 0.75], [0.5, 0.5]])
    q = mx.array([[0.3, 0.75]])  # not below p anywhere, as after rounding
    kept, weights = verdict(p, Proposal(mx.array([0], dtype=mx.int32), q), np.array([1 - 2.0**-24]))
    assert kept.item() == 0
    assert weights.tolist() == p[:1].tolist()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 3), st.sampled_from(["dense", "sparse", "one-hot"]))
def test_a_round_does_what_its_recorded_decisions_say(key, n, kind):
    rng, size, sampling = np.random.default_rng(key), 6, Sampling(1.0, top_p=0.9, seed=key)
    logits = mx.array(rng.normal(size=(n + 1, size)).astype(np.float32) * 2)
    q = rng.dirichlet(np.ones(size), size=n).astype(np.float32)
    tokens = rng.integers(size, size=n)
    proposal = {
        "dense": Proposal(mx.array(tokens, dtype=mx.int32), mx.array(q)),
        "sparse": Proposal(mx.array(tokens, dtype=mx.int32), mx.array(q), mx.array([[*range(size)]] * n)),
        "one-hot": Proposal(mx.array(tokens, dtype=mx.int32)),
    }[kind if n else "one-hot"]
    outcome = sampled(logits, proposal, key, sampling=sampling)
    kept, token, *draft = outcome.read.tolist()
    made, p = outcome.decisions(), np.array(distribution(logits, sampling))
    assert draft == tokens.tolist()
    assert len(made.uniform) == len(made.p) == len(made.q) == min(kept + 1, n) + 1
    for slot, (uniform, mine, theirs) in enumerate(zip(made.uniform[:-1], made.p, made.q, strict=False)):
        assert mine == p[slot, draft[slot]]
        assert theirs == (1 if kind == "one-hot" else q[slot, draft[slot]])
        assert (uniform * theirs < mine) == (slot < kept)
    assert made.p[-1] == p[kept, token] > 0
    assert made.q[-1] == (0 if kept == n or kind == "one-hot" else q[kept, token])
    assert made.uniform[-1] == uniforms(sampling, "verify", key, rows=1)[0]


def test_greedy_keeps_the_leading_run_and_breaks_ties_by_id():
    logits = mx.array([[0.0, 2, 2], [3, 1, 0], [0, 0, 0]])
    for draft, read in {(): [0, 1], (1, 0): [2, 0, 1, 0], (1, 2): [1, 0, 1, 2], (2, 0): [0, 1, 2, 0]}.items():
        proposal = Proposal(mx.array(draft, dtype=mx.int32)) if draft else nothing()
        assert greedy(logits[: len(draft) + 1], proposal, 0).read.tolist() == read


# --- beyond enumeration: long answers of the whole loop, as chains whose transitions are known ------------------------

SIZE, TOKENS = 12, 700
CHAIN = Sampling(0.9, top_p=0.95, seed=11)
TABLE = mx.random.normal((SIZE, SIZE), key=mx.random.key(0)) * 1.3


class Chain(nn.Module):
    """A target without layers whose next token depends on the last one alone."""

    def __init__(self, dtype: mx.Dtype = mx.float32) -> None:
        super().__init__()
        self.table, self.layers = TABLE.astype(dtype), []

    def __call__(self, ids: mx.array, cache=None) -> mx.array:
        return self.table[ids]


class Guess:
    """Draws each token from a blurred chain, given the one that it drew before."""

    silent, block = False, 3

    def __init__(self, kind: str) -> None:
        self.kind, self.free = kind, int(kind == "free")

    def append_context(self, ids, taps=None) -> None:
        pass

    def propose(self, anchor: mx.array, k: int, *, step: int) -> Proposal:
        uniform, last, rows, tokens = uniforms(CHAIN, "draft", step, rows=k + self.free), anchor, [], []
        for place, value in enumerate(uniform):
            sharp = place == 0 and self.kind == "free"
            logits = TABLE[last] if sharp else TABLE[last] * 0.5 + mx.arange(SIZE) * 0.1
            rows.append(distribution(logits, CHAIN if sharp else Sampling(1.0, top_k=5)))
            last = draw(rows[-1], np.array([value]))
            tokens.append(last)
        q, ids = mx.concatenate(rows), mx.concatenate(tokens)
        if self.kind == "one-hot":
            return Proposal(mx.argmax(q, axis=-1).astype(mx.int32))
        if self.kind == "sparse":
            columns = mx.argsort(-q, axis=-1)[:, :5].astype(mx.int32)
            return Proposal(ids, mx.take_along_axis(q, columns, axis=-1), columns)
        return Proposal(ids, q)


def chain_p_value(drafter, *, dtype: mx.Dtype = mx.float32) -> float:
    """The chance that as unlike transitions come from the target; counts below 5 are pooled."""
    rounds = decode(
        TargetState(Chain(dtype)),
        drafter,
        mx.array([0], dtype=mx.int32),
        k=0,
        limits=Limits(TOKENS, frozenset()),
        sampling=CHAIN,
    )
    answer = [token for result in rounds for token in result.committed]
    assert len(answer) == TOKENS
    seen = np.zeros((SIZE, SIZE))
    np.add.at(seen, (answer[:-1], answer[1:]), 1)
    p = np.array(distribution(TABLE.astype(dtype), CHAIN)).astype(np.float64)
    assert not seen[p == 0].any()
    statistic, freedom = 0.0, 0
    for counts, law in zip(seen, p, strict=True):
        expected = law * counts.sum()
        big = expected >= 5
        cells = [*zip(counts[big], expected[big], strict=True), (counts[~big].sum(), expected[~big].sum())]
        statistic += sum((count - mean) ** 2 / mean for count, mean in cells if mean > 0)
        freedom += max(sum(mean > 0 for _, mean in cells) - 1, 0)
    return float(chi2.sf(statistic, freedom))


@pytest.mark.parametrize("kind", ["conditional", "sparse", "one-hot", "free"])
def test_a_long_answers_transitions_are_the_targets(kind):
    """Significance 0.1 %; the keys are fixed, so the outcome is too."""
    assert chain_p_value(Guess(kind)) > 0.001


def test_a_long_answer_without_drafts_or_of_bfloat16_logits_is_the_targets_too():
    assert chain_p_value(Silent()) > 0.001
    assert chain_p_value(Guess("conditional"), dtype=mx.bfloat16) > 0.001


def test_chi_square_sees_a_wrong_rule(monkeypatch):
    monkeypatch.setattr("draftledger.decoding.acceptance.verdict", from_p)
    assert chain_p_value(Guess("conditional")) < 1e-6
