"""Rounds rows cut into arms, seeds and prompts, with every count checked."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from draftledger.errors import DraftledgerError
from draftledger.measurement.acceptance_metrics import Rounds, Terms, repeated_positions
from draftledger.statistics.cells import Cells

ANSWER = ("seed", "launch", "prompt", "noise")


@dataclass(frozen=True, slots=True)
class ArmRounds:
    """All rounds of one arm: [N] rows, grouped into S seeds (1 without seeds) and P sorted prompts."""

    arm: str
    rounds: Rounds
    cell: NDArray[np.int64]
    seeds: tuple[int, ...]
    prompts: tuple[str, ...]
    categories: tuple[str, ...]
    launches: int
    loops: Terms

    @property
    def seeded(self) -> bool:
        """Whether the arm was trained, or initialised, from seeds."""
        return bool(self.seeds)

    @property
    def tokens(self) -> int:
        """Emitted tokens of all answers."""
        return int(self.rounds.emitted.sum())

    def cells(self, terms: Terms) -> Cells:
        """Sum the terms [N] of a metric per (seed, prompt)."""
        shape = max(len(self.seeds), 1), len(self.prompts)
        size = shape[0] * shape[1]
        sums = (np.bincount(self.cell, term, size).astype(np.float64).reshape(shape) for term in terms)
        return Cells(*sums, seeded=self.seeded)

    def decoding_rounds(self, prompts: NDArray[np.bool_]) -> int:
        """Rounds after the prefill on the chosen prompts, a mask [P]."""
        return int(np.sum((self.rounds.index >= 0) & prompts[self.cell % len(self.prompts)]))


def split_rounds(table: pa.Table, *, ngram: int) -> dict[str, ArmRounds]:
    """Group a rounds table by arm; raises DraftledgerError when rows are missing, repeated or disagree."""
    names = sorted(table["arm"].unique().to_pylist())
    arms = {name: _arm_rounds(name, of_arm(table, name), ngram) for name in names}
    first = arms[names[0]] if names else None
    for arm in arms.values():
        if first and (arm.prompts, arm.categories) != (first.prompts, first.categories):
            raise DraftledgerError(
                f"rounds: arms {first.arm} and {arm.arm} answered other prompts; decode both on the same set"
            )
    return arms


def of_arm(table: pa.Table, name: str) -> pa.Table:
    """The rows of one arm."""
    return table.filter(pa.array(table["arm"].to_numpy() == name, pa.bool_()))


def _arm_rounds(name: str, table: pa.Table, ngram: int) -> ArmRounds:
    table = table.sort_by([(column, "ascending") for column in (*ANSWER, "round")])
    rounds = Rounds.from_table(table)
    starts = _answer_starts(name, table, rounds)
    seeds = tuple(table["seed"].drop_null().unique().to_pylist())
    prompts, prompt = np.unique(table["prompt"].to_numpy(), return_inverse=True)
    seed = np.searchsorted(seeds, table["seed"].to_numpy()) if seeds else np.zeros(len(prompt), np.int64)
    cell = seed * len(prompts) + prompt
    size = max(len(seeds), 1) * len(prompts)
    if table["seed"].null_count not in (0, len(table)) or np.any(
        np.bincount(cell[rounds.index >= 0], minlength=size) == 0
    ):
        raise DraftledgerError(
            f"rounds of arm {name}: a (seed, prompt) has no rounds after its prefill; "
            "decode the missing prompt, or drop one that is answered by a single token"
        )
    return ArmRounds(
        arm=name,
        rounds=rounds,
        cell=cell,
        seeds=seeds,
        prompts=tuple(prompts.tolist()),
        categories=_categories(name, table, prompts.tolist()),
        launches=len(table.select(["seed", "launch"]).group_by(["seed", "launch"]).aggregate([])) if seeds else 0,
        loops=_loops(table, rounds, starts, ngram),
    )


def _answer_starts(name: str, table: pa.Table, rounds: Rounds) -> NDArray[np.int64]:
    """Row of each answer's prefill; every answer must count its rounds from -1 without a gap and end once."""
    starts = np.flatnonzero(rounds.index == -1)
    answers = len(table.group_by(list(ANSWER)).aggregate([]))
    lengths = np.diff(np.append(starts, len(table)))
    expected = np.arange(len(table)) - np.repeat(starts, lengths) - 1 if len(starts) == answers else None
    if expected is None or len(expected) != len(table) or np.any(expected != rounds.index):
        raise DraftledgerError(f"rounds of arm {name}: an answer lacks rounds or has them twice; decode that arm again")
    stops = np.flatnonzero(table["stop"].is_valid().to_numpy())
    if not np.array_equal(stops, np.append(starts[1:], len(table)) - 1):
        raise DraftledgerError(
            f"rounds of arm {name}: a stop reason belongs on each answer's last round; decode that arm again"
        )
    return starts


def _loops(table: pa.Table, rounds: Rounds, starts: NDArray[np.int64], ngram: int) -> Terms:
    """Repeated and all positions of each answer, placed at its prefill row: two arrays [N]."""
    tokens = table["committed"].combine_chunks().flatten().to_numpy()
    before = np.concatenate([[0], np.cumsum(rounds.emitted)])[starts]
    repeated, positions = np.zeros(len(table)), np.zeros(len(table))
    for start, answer in zip(starts, np.split(tokens, before[1:]), strict=True):
        repeated[start], positions[start] = repeated_positions(answer, ngram), len(answer)
    return repeated, positions


def _categories(name: str, table: pa.Table, prompts: list[str]) -> tuple[str, ...]:
    pairs = table.group_by(["prompt", "category"]).aggregate([]).sort_by("prompt")
    if pairs["prompt"].to_pylist() != prompts:
        raise DraftledgerError(f"rounds of arm {name}: a prompt has two categories; give it one")
    return tuple(pairs["category"].to_pylist())
