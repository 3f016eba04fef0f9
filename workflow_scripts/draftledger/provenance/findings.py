"""The words for what a check of results finds, one for each artefact."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

State = Literal["ok", "altered", "stale", "unexplained", "orphan", "absent", "missing"]
FAULTS: tuple[State, ...] = ("altered", "stale", "unexplained", "missing")


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one file or artefact, and why it is not ok."""

    path: str
    state: State
    reason: str = ""


def archived(findings: Iterable[tuple[str, str, str]]) -> tuple[Finding, ...]:
    """Return an archive's findings, which its stand-alone check gives as plain texts."""
    states = {state: state for state in get_args(State)}
    return tuple(Finding(path, states[state], reason) for path, state, reason in findings)


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found, artefact by artefact, and which inputs outside the results were not here to compare."""

    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Return how many artefacts are in each state that occurs."""
        return dict(Counter(finding.state for finding in self.findings))

    @property
    def faults(self) -> list[Finding]:
        """Return the findings that speak against the results."""
        return [finding for finding in self.findings if finding.state in FAULTS]

    def record(self) -> dict[str, Any]:
        """Return everything but the names of what is ok, as plain JSON types."""
        named = [asdict(finding) for finding in self.findings if finding.state != "ok"]
        return {"schema": 1, "counts": self.counts, "findings": named, "unchecked": list(self.unchecked)}
