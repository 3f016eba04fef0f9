"""Timing rows of one arm as dense [files, prompts, repeats] arrays: a cell is missing or doubled, or it counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from draftledger.errors import DraftledgerError
from draftledger.statistics.cells import Cells
from draftledger.statistics.intervals import Matrix

FILE = ("seed", "launch", "session")
COLUMNS = (
    "new_tokens",
    "rounds",
    "prefill_s",
    "ttft_s",
    "decode_s",
    "total_s",
    "draft_s",
    "verify_s",
    "commit_s",
    "peak_bytes",
)
Cube = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Layout:
    """The axes of every cube: F files as (seed, launch, session) with -1 for none, P prompts, R repeats."""

    files: tuple[tuple[int, int, int], ...]
    prompts: tuple[str, ...]
    repeats: tuple[int, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """Training seeds whose adapters were timed, none if only arms without seeds were."""
        return tuple(sorted({seed for seed, _, _ in self.files if seed >= 0}))

    @property
    def launches(self) -> int:
        """Training launches over all seeds."""
        return len({file[:2] for file in self.files if file[0] >= 0})


@dataclass(frozen=True, slots=True)
class Timing:
    """Every arm's timing rows of one mode: arm → column → cube [F, P, R]; NaN where a stage is not timed."""

    layout: Layout
    arms: Mapping[str, Mapping[str, Cube]]

    def cells(self, numerator: Cube, denominator: Cube, *, seeded: bool) -> Cells:
        """Means over launches, sessions and repeats of two cubes: cells [S, P], or [1, P] without seeds."""
        return Cells(self._per_seed(numerator, seeded), self._per_seed(denominator, seeded), seeded)

    def _per_seed(self, cube: Cube, seeded: bool) -> Matrix:
        per_file = cube.mean(axis=2)
        if not seeded:
            return per_file.mean(axis=0, keepdims=True)
        owner = np.array([seed for seed, _, _ in self.layout.files])
        return np.stack([per_file[owner == seed].mean(axis=0) for seed in self.layout.seeds])


def read_timing(table: pa.Table, mode: str) -> Timing | None:
    """Build the cubes of one mode; None without such rows. Raises DraftledgerError for uneven rows.

    A timing process is (seed, launch, session); arms without a seed carry the seed of the file they stand in.
    """
    table = table.filter(pa.array(table["mode"].to_numpy() == mode, pa.bool_()))
    if not len(table):
        return None
    keys = np.stack([table[column].fill_null(-1).to_numpy() for column in FILE], axis=1)
    files, file = np.unique(keys, axis=0, return_inverse=True)
    prompts, prompt = np.unique(table["prompt"].to_numpy(), return_inverse=True)
    repeats, repeat = np.unique(table["repeat"].to_numpy(), return_inverse=True)
    shape = len(files), len(prompts), len(repeats)
    cell = np.ravel_multi_index((file.ravel(), prompt, repeat), shape)
    arm_of = np.asarray(table["arm"].to_numpy())
    columns = {name: table[name].cast(pa.float64()).to_numpy() for name in COLUMNS}
    arms = {}
    for arm in sorted(set(arm_of)):
        rows = np.flatnonzero(arm_of == arm)
        _check_filled(arm, mode, cell[rows], shape)
        rows = rows[np.argsort(cell[rows])]
        arms[arm] = {name: values[rows].reshape(shape) for name, values in columns.items()}
    layout = Layout(
        tuple((seed, launch, session) for seed, launch, session in files.tolist()),
        tuple(prompts.tolist()),
        tuple(repeats.tolist()),
    )
    _check_sessions(layout)
    return Timing(layout, arms)


def _check_filled(arm: str, mode: str, cell: NDArray[np.int64], shape: Sequence[int]) -> None:
    counts = np.bincount(cell, minlength=int(np.prod(shape)))
    if np.any(counts != 1):
        raise DraftledgerError(
            f"timing of arm {arm}, {mode} rows: {int((counts == 0).sum())} (file, prompt, repeat) cells are "
            f"missing and {int((counts > 1).sum())} doubled of {counts.size}; time those sessions again"
        )


def _check_sessions(layout: Layout) -> None:
    sessions: dict[tuple[int, int], int] = {}
    for seed, launch, _ in layout.files:
        sessions[seed, launch] = sessions.get((seed, launch), 0) + 1
    if len(set(sessions.values())) > 1 or len({seed < 0 for seed, _ in sessions}) > 1:
        raise DraftledgerError(f"timing: sessions per (seed, launch) differ, {sessions}; time the missing sessions")
