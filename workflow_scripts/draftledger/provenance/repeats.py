"""Recipes that gave more than one content: expected of draws, a fault of every other stage."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from draftledger.provenance.graph import Graph
from draftledger.provenance.index import entries, read_entry
from draftledger.provenance.natures import nature_of
from draftledger.provenance.store import Store


@dataclass(frozen=True, slots=True)
class Repeated:
    """A recipe by its rule and key, the output that differs, and in how many contents it is known."""

    rule: str
    key: str
    name: str
    contents: int

    @property
    def expected(self) -> bool:
        """Tell whether the rule is a draw or a probe, which may differ."""
        return nature_of(self.rule) != "repeatable"

    def record(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return {**asdict(self), "expected": self.expected}


def repeated(graphs: Iterable[Graph], store: Store) -> list[Repeated]:
    """Return every recipe with several contents, over results and the store's index, sorted by rule and key."""
    known: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for graph in graphs:
        for artefact in graph.artefacts.values():
            if artefact.recipe:
                place = (artefact.recipe.rule, artefact.recipe.key, artefact.manifest.name)
                known[place].add(artefact.manifest.content)
    for path in entries(store):
        entry = read_entry(store, path)
        for manifest in entry.manifests:
            known[entry.rule, entry.key, manifest.name].add(manifest.content)
    return [Repeated(*place, len(contents)) for place, contents in sorted(known.items()) if len(contents) > 1]
