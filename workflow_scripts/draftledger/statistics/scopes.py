"""The groups of prompts over which numbers are reported: all, by category, and by looping."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftledger.errors import DraftledgerError
from draftledger.statistics.answers import ArmRounds

ALL = "all"
STRATA = ("no-loops", "looped")


@dataclass(frozen=True, slots=True)
class Scopes:
    """Category of each prompt, and the prompts whose plain autoregressive answers loop."""

    categories: Mapping[str, str]
    looped: frozenset[str]

    def masks(self, prompts: Sequence[str]) -> dict[str, NDArray[np.bool_]]:
        """Mask [P] of each scope; loop strata are present only when neither is empty.

        Raises DraftledgerError for a prompt that was never decoded.
        """
        unknown = sorted(set(prompts) - set(self.categories))
        if unknown:
            raise DraftledgerError(f"timing: prompts {unknown} were never decoded; decode the same prompts")
        masks = {ALL: np.ones(len(prompts), bool)}
        for category in sorted({self.categories[prompt] for prompt in prompts}):
            masks[f"category:{category}"] = np.array([self.categories[p] == category for p in prompts])
        looped = np.array([prompt in self.looped for prompt in prompts])
        return masks | ({"no-loops": ~looped, "looped": looped} if 0 < looped.sum() < len(prompts) else {})


def strata_roles(scope: str, baseline: str) -> tuple[str, ...]:
    """Return the role of the rows that fix a loop stratum: the baseline's rounds, or none for other scopes."""
    return (f"rounds:{baseline}",) if scope in STRATA else ()


def fix_scopes(autoregressive: ArmRounds, *, threshold: float) -> Scopes:
    """Fix the strata on the autoregressive arm: a prompt loops at a repeated share of `threshold` or more."""
    loops = autoregressive.cells(autoregressive.loops)
    shares = loops.numerator.sum(axis=0) / loops.denominator.sum(axis=0)
    looped = frozenset(
        prompt for prompt, share in zip(autoregressive.prompts, shares, strict=True) if share >= threshold
    )
    return Scopes(dict(zip(autoregressive.prompts, autoregressive.categories, strict=True)), looped)
