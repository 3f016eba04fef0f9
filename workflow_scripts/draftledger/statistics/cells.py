"""Sum per (seed, prompt): the form in which every number reaches its interval."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftledger.statistics.intervals import Matrix


@dataclass(frozen=True, slots=True)
class Cells:
    """numerator, denominator: [S, P]; the number is Σnumerator / Σdenominator. S is 1 without seeds."""

    numerator: Matrix
    denominator: Matrix
    seeded: bool

    @classmethod
    def of_values(cls, values: Matrix, *, seeded: bool) -> "Cells":
        """Cells whose number is the plain mean of values [S, P]."""
        return cls(values, np.ones_like(values), seeded)

    def take(self, prompts: NDArray[np.bool_]) -> "Cells":
        """The cells of the chosen prompts, a mask [P]."""
        return Cells(self.numerator[:, prompts], self.denominator[:, prompts], self.seeded)

    @property
    def counted(self) -> bool:
        """False when the denominator is zero: the number does not exist."""
        return bool(self.denominator.sum() > 0)
