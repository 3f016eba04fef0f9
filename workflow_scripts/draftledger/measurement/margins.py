"""How far an emitted token lies from what the target's own logits decide: ULPs a logit would have to be off by."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftledger.decoding.acceptance import Decisions
from draftledger.decoding.loop import Round
from draftledger.decoding.sampling import Sampling

Floats = NDArray[np.floating[Any]]

# What float32 arithmetic between logits and decision may move: log odds of a probability, and a cumulative sum.
LOG_ODDS, SUM = 1e-4, 1e-5
# The margin of a token that no logits could have given.
FAR = 1e30


@dataclass(frozen=True, slots=True)
class Position:
    """One emitted token, and how many float32 ULPs of its row's maximum the logits are from giving it, or another.

    `argmax` is the row's best token. `margin_ulp` is 0 where the logits give the emitted token; `runner_up` is what
    they would give next, were they off by `runner_up_ulp`.
    """

    token: int
    argmax: int
    margin_ulp: float
    runner_up: int
    runner_up_ulp: float


def greedy_positions(rows: Floats, tokens: Sequence[int]) -> list[Position]:
    """Return the positions of greedy tokens; rows: [n, V] hold the logits each was chosen from."""
    places, best = np.arange(len(rows)), rows.argmax(axis=-1)
    others = rows.copy()
    others[places, best] = -np.inf
    second, top = others.argmax(axis=-1), rows[places, best]
    unit = np.spacing(np.abs(top))
    return [
        Position(
            token=int(token),
            argmax=int(best[i]),
            margin_ulp=float((top[i] - rows[i, token]) / unit[i]),
            runner_up=int(second[i]),
            runner_up_ulp=float((top[i] - rows[i, second[i]]) / unit[i]),
        )
        for i, token in enumerate(tokens)
    ]


def sampled_positions(
    rows: Floats, result: Round, *, sampling: Sampling, allowed: float, q: Floats | None = None
) -> Iterator[Position]:
    """Yield the positions of a sampled round's tokens, each decision made again from rows [n, V] of logits.

    Uniforms and the drafter's q of single tokens are the round's; `q` [draft, V] are its distributions, found again.
    Logits that are off by a ULPs move every log odds by at most 2 a ULP / temperature, so a decision's margin is its
    distance in log odds, told in ULPs. Which tokens the filters keep may change too: probabilities are bounded over
    all sets that logits within `allowed` could give.
    """
    for place, token in enumerate(result.committed):
        row = _Row.of(rows[place], sampling, allowed=allowed)
        drafted = None if q is None or place >= len(q) else q[place]
        margin, runner_up, gap = _margin(row, result, place, drafted)
        argmax = int(rows[place].argmax())
        yield Position(int(token), argmax, row.ulps(margin), runner_up, row.ulps(gap))


@dataclass(frozen=True, slots=True)
class _Row:
    """Weights [V] that the tokens have at least and at most; `slack` log odds are allowed, `scale` ULPs each."""

    surely: Floats
    maybe: Floats
    scale: float
    slack: float

    @classmethod
    def of(cls, logits: Floats, sampling: Sampling, *, allowed: float) -> "_Row":
        """Return what logits [V] that may be off by `allowed` ULPs give."""
        scale = sampling.temperature / (2 * float(np.spacing(np.abs(np.float32(logits.max())))))
        slack = allowed / scale + LOG_ODDS
        weights = np.exp((logits.astype(np.float64) - logits.max()) / sampling.temperature)
        if not sampling.filters:
            return cls(weights, weights, scale, slack)
        falling = np.sort(weights)[::-1]
        dropped = falling[_kept(falling, sampling, slack) :].max(initial=0)
        kept = falling[_kept(falling, sampling, -slack) - 1]
        surely = np.where(weights > dropped * math.exp(slack), weights, 0)
        return cls(surely, np.where(weights >= kept * math.exp(-slack), weights, 0), scale, slack)

    def without(self, token: int) -> "_Row":
        """Return the row after a drafter that was certain of `token` was refused."""
        surely, maybe = self.surely.copy(), self.maybe.copy()
        surely[token] = maybe[token] = 0
        return replace(self, surely=surely, maybe=maybe)

    def beyond(self, q: Floats) -> "_Row":
        """Return the row after a drafter with the distribution q [V] was refused: what p exceeds q by."""
        least = self.surely / np.maximum(self.surely + self.maybe.sum() - self.maybe, 1e-30)
        most = self.maybe / np.maximum(self.maybe + self.surely.sum() - self.surely, 1e-30)
        # Twice the slack: q's own, and what p may be off by where the two are alike.
        surely, maybe = least - q * math.exp(2 * self.slack), most - q * math.exp(-2 * self.slack)
        return replace(self, surely=np.maximum(surely, 0), maybe=np.maximum(maybe, 0))

    def share(self, start: int, stop: int) -> tuple[float, float]:
        """Return the least and the largest share that tokens from `start` to before `stop` may have."""
        (low, rest_low), (high, rest_high) = (
            (part := float(weights[start:stop].sum()), float(weights.sum()) - part)
            for weights in (self.surely, self.maybe)
        )
        return _ratio(low, rest_high), _ratio(high, rest_low)

    def ulps(self, distance: float) -> float:
        """Turn a distance in log odds into ULPs of the row's largest logit."""
        return FAR if math.isinf(distance) else max(0.0, distance - LOG_ODDS) * self.scale


def _kept(falling: Floats, sampling: Sampling, nudge: float) -> int:
    """Return how many of the falling weights the filters keep when they are stricter (nudge > 0) by log odds."""
    count = min(sampling.top_k or len(falling), len(falling))
    if sampling.top_p < 1:
        before = (np.cumsum(falling[:count]) - falling[:count]) / falling[:count].sum()
        count = max(1, int((before < _expit(_logit(sampling.top_p) - nudge)).sum()))
    return int((falling[:count] >= min(1.0, sampling.min_p * math.exp(nudge)) * falling[0]).sum())


def _margin(row: _Row, result: Round, place: int, q: Floats | None) -> tuple[float, int, float]:
    """Return how far the token's decisions lie outside what the row allows, the runner-up, and how far that lies."""
    made, kept, token = result.decisions, result.free_accepted + result.accepted, int(result.committed[place])
    if made is None or len(made.uniform) != min(kept + 1, len(result.draft)) + 1 or not row.maybe[token]:
        return math.inf, token, 0.0
    if not all(0 <= told <= 1 + SUM for told in made.q):
        return math.inf, token, 0.0
    if place < kept:
        margin, gap = _test(row, made, place, result.draft[place], passed=True)
        return (margin if token == result.draft[place] else math.inf), token, gap
    refused = result.draft[kept] if kept < len(result.draft) else None
    margin, runner_up, gap = _draw(row, made, token, refused, q)
    margin = max(margin, _outside(made.p[-1], *row.share(token, token + 1)))
    if refused is None:
        return margin, runner_up, gap
    wrong, right = _test(row, made, kept, refused, passed=False)
    return max(margin, wrong), (refused if right < gap else runner_up), min(gap, right)


def _test(row: _Row, made: Decisions, place: int, drafted: int, *, passed: bool) -> tuple[float, float]:
    """Return by how much a draft token's test is wrong, its recorded p included, and by how much it is right."""
    low, high = row.share(drafted, drafted + 1)
    bar = made.uniform[place] * made.q[place]
    wrong = _outside(bar, 0, high) if passed else _outside(bar, low, 1)
    return max(wrong, _outside(made.p[place], low, high)), _above(low, bar + SUM) if passed else _above(bar - SUM, high)


def _draw(row: _Row, made: Decisions, token: int, refused: int | None, q: Floats | None) -> tuple[float, int, float]:
    """Return by how much the drawn token is wrong, its neighbour in the cumulative sum, and how near that is."""
    if refused is not None and made.q[-2] == 1:
        row = row.without(refused)
    elif refused is not None and q is not None and _same(row, made, q[[refused, token]]):
        row = row.beyond(q)
    elif refused is not None:
        # Without all of q: the target must like that token better than the drafter.
        return _above(made.q[-1] - SUM, row.share(token, token + 1)[1]), token, 0.0
    if not row.maybe[token]:
        return math.inf, token, 0.0
    uniform, before, after = made.uniform[-1], row.share(0, token), row.share(0, token + 1)
    down, up = _above(uniform - SUM, before[1]), _above(after[0], uniform + SUM)
    others = np.flatnonzero(row.maybe)
    place, margin = int(np.searchsorted(others, token)), _outside(uniform, before[0], after[1])
    if len(others) == 1:
        return margin, (token + 1) % len(row.maybe), math.inf
    down, up = (math.inf if place == 0 else down), (math.inf if place == len(others) - 1 else up)
    return margin, int(others[place - 1 if down < up else place + 1]), min(down, up)


def _same(row: _Row, made: Decisions, q: Floats) -> bool:
    """Tell whether the q of the refused and of the drawn token are those recorded."""
    low, high = q * math.exp(-row.slack), q * math.exp(row.slack)
    return all(_outside(told, a, b) == 0 for told, a, b in zip(made.q[-2:], low, high, strict=True))


def _outside(value: float, low: float, high: float) -> float:
    """Return how far a value lies outside an interval in log odds, float32 sums forgiven."""
    return max(_above(low, value + SUM), _above(value - SUM, high))


def _above(one: float, other: float) -> float:
    return max(0.0, _logit(one) - _logit(other))


def _ratio(part: float, rest: float) -> float:
    return part / (part + rest) if part + rest > 0 else 0.0


def _logit(p: float) -> float:
    p = min(max(p, 1e-30), 1 - 1e-15)
    return math.log(p) - math.log1p(-p)


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(-x))
