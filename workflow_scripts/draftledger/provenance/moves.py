"""Which numbers of two summaries differ, and the chain of differences that each comes from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from draftledger.provenance.diff import Difference
from draftledger.provenance.graph import Graph
from draftledger.provenance.numbers import KEY, SUMMARY, Number

VALUES = ("estimate", "low", "high", "verdict")


@dataclass(frozen=True, slots=True)
class Move:
    """A number that differs: its row in each summary (null where it has none), and what that comes from.

    A cause is an artefact and what its own recipe changed, or a file outside the results with other content.
    """

    before: Number | None
    after: Number | None
    causes: tuple[str, ...]

    @property
    def size(self) -> float:
        """Return how far the estimate moved, relative to what it was; infinite when it is new, gone or was 0."""
        if self.before is None or self.after is None:
            return float("inf")
        one, other = self.before["estimate"], self.after["estimate"]
        return 0.0 if one == other else abs(other - one) / abs(one) if one else float("inf")


def moves(
    graphs: tuple[Graph, Graph], numbers: tuple[Sequence[Number], Sequence[Number]], differences: Iterable[Difference]
) -> list[Move]:
    """Return every number that differs with its causes, the largest move first."""
    before, after = ({_key(row): row for row in rows} for rows in numbers)
    chains = _Chains(graphs, {difference.role: difference for difference in differences})
    found = []
    for key in sorted({*before, *after}):
        one, other = before.get(key), after.get(key)
        if _values(one) != _values(other):
            roles = chains.behind(0, one) | chains.behind(1, other)
            found.append(Move(one, other, tuple(sorted(chains.causes(roles)))))
    return sorted(found, key=lambda move: -move.size)


def _key(row: Number) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in KEY)


def _values(row: Number | None) -> Any:
    return row and [row[name] for name in VALUES]


@dataclass(frozen=True, slots=True)
class _Chains:
    """From the inputs of a number through what differs to where the differences begin."""

    graphs: tuple[Graph, Graph]
    differences: dict[str, Difference]
    known: dict[str, frozenset[str]] = field(default_factory=dict)

    def behind(self, side: int, row: Number | None) -> set[str]:
        """Return what lies behind one number, back to what differs."""
        summary = self.graphs[side].artefacts.get(SUMMARY)
        if row is None or summary is None or summary.recipe is None:
            return set()
        return {item.role for item in summary.recipe.inputs if item.content in row["inputs"]}

    def causes(self, roles: set[str]) -> set[str]:
        """Return the causes behind some inputs of the summary, and those of the summary itself."""
        summary = self.differences.get(SUMMARY)
        found = set(_own(summary)) if summary else set()
        for role in summary.through if summary else ():
            if not any(role in graph.artefacts for graph in self.graphs):
                found.add(f"{role}: other content")
        return found.union(*(self._of(role) for role in roles))

    def _of(self, role: str) -> frozenset[str]:
        if role not in self.known:
            self.known[role] = frozenset()  # only forged recipes lead in a circle
            difference = self.differences.get(role)
            if difference is None and any(role in graph.artefacts for graph in self.graphs):
                return self.known[role]
            if difference is None:
                self.known[role] = frozenset({f"{role}: other content"})
            elif not difference.same_content:
                through = (self._of(name) for name in difference.through)
                self.known[role] = frozenset(_own(difference)).union(*through)
        return self.known[role]


def _own(difference: Difference) -> list[str]:
    words = difference.own if difference.kind in ("recipe", "content") else (difference.kind,)
    again = ("drawn again",) if difference.drawn and difference.kind == "recipe" else ()
    return [f"{difference.role}: {word}" for word in (*words, *again)]
