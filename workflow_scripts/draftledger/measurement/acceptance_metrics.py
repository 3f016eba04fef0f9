"""One definition for each number that describes what a drafter proposed and the target accepted.

A metric is a pair of terms per rounds row, numerator and denominator; its value is sum over sum.
`docs/metrics.md` states the same definitions in words.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from draftledger.errors import DraftledgerError

Terms = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Rounds:
    """Columns of rounds rows, each [N] int64; the prefill is the row with index -1."""

    index: NDArray[np.int64]
    offered: NDArray[np.int64]
    accepted: NDArray[np.int64]
    emitted: NDArray[np.int64]
    forwards: NDArray[np.int64]

    @classmethod
    def from_table(cls, table: pa.Table) -> "Rounds":
        """Read the columns of a rounds table; raises DraftledgerError where counts do not close."""
        forwards = sum(_integers(table, f"{stage}_forwards") for stage in ("draft", "verify", "replay"))
        rounds = cls(
            index=_integers(table, "round"),
            offered=_integers(table, "offered"),
            accepted=_integers(table, "accepted"),
            emitted=_lengths(table, "committed"),
            forwards=np.asarray(forwards),
        )
        free, lost = _integers(table, "free"), _integers(table, "free_accepted") < _integers(table, "free")
        if np.any(np.where(lost, rounds.offered, _lengths(table, "draft") - free - rounds.offered)):
            raise DraftledgerError("rounds: a draft is not as long as offered + free; decode that arm again")
        if np.any((rounds.accepted > rounds.offered) | (rounds.accepted < 0)):
            raise DraftledgerError("rounds: a round accepted more than it offered; decode that arm again")
        if np.any((rounds.index < 0) & (rounds.offered > 0)):
            raise DraftledgerError("rounds: a prefill row offers draft tokens; decode that arm again")
        return rounds


def acceptance_rate(rounds: Rounds) -> Terms:
    """Accepted over offered speculative tokens (micro)."""
    return _terms(rounds.accepted, rounds.offered)


def accepted_per_round(rounds: Rounds) -> Terms:
    """Accepted speculative tokens over rounds, without the +1 and without free tokens."""
    return _terms(rounds.accepted, rounds.index >= 0)


def tokens_per_round(rounds: Rounds) -> Terms:
    """Emitted tokens over rounds: accepted + 1 + free, less what the answer's end cut off."""
    decoding = rounds.index >= 0
    return _terms(rounds.emitted * decoding, decoding)


def tokens_per_forward(rounds: Rounds) -> Terms:
    """Emitted tokens, token 0 included, over all forwards: prefill, drafts, verifies and replays."""
    return _terms(rounds.emitted, rounds.forwards)


def drafting_share(rounds: Rounds) -> Terms:
    """Rounds that offered at least one speculative token over all rounds."""
    return _terms(rounds.offered > 0, rounds.index >= 0)


def survival_joint(rounds: Rounds, slot: int) -> Terms:
    """Rounds that accepted slots 1 to `slot` over rounds that offered them; slots count from 1."""
    offered = rounds.offered >= slot
    return _terms((rounds.accepted >= slot) & offered, offered)


def survival_conditional(rounds: Rounds, slot: int) -> Terms:
    """Rounds that accepted `slot` over rounds that offered it and accepted every slot before it."""
    reached = (rounds.offered >= slot) & (rounds.accepted >= slot - 1)
    return _terms((rounds.accepted >= slot) & reached, reached)


def pooled(terms: Terms) -> float | None:
    """Sum of numerators over sum of denominators; None when nothing was counted."""
    numerator, denominator = terms
    return float(numerator.sum() / denominator.sum()) if denominator.sum() else None


def repeated_positions(tokens: NDArray[np.int64], ngram: int = 8) -> int:
    """Count the positions of one answer, tokens [T], at which an n-gram ends that ended before."""
    if len(tokens) < ngram:
        return 0
    windows = np.lib.stride_tricks.sliding_window_view(tokens, ngram)
    return len(windows) - len(set(map(tuple, windows.tolist())))


def loop_fraction(tokens: NDArray[np.int64], ngram: int = 8) -> float:
    """Share of an answer's positions whose n-gram occurred already; 0 for an empty answer."""
    return repeated_positions(tokens, ngram) / max(len(tokens), 1)


def _integers(table: pa.Table, column: str) -> NDArray[np.int64]:
    if table[column].null_count:
        raise DraftledgerError(f"rounds: column {column} has empty cells; decode that arm again")
    return table[column].to_numpy().astype(np.int64)


def _lengths(table: pa.Table, column: str) -> NDArray[np.int64]:
    return table[column].combine_chunks().value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)


def _terms(numerator: NDArray, denominator: NDArray) -> Terms:
    return numerator.astype(np.float64), denominator.astype(np.float64)
