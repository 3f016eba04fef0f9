"""The store's index as a whole: every recipe that was ever computed, and the manifests of its draws."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from draftledger.errors import CorruptError
from draftledger.provenance.digest import digest
from draftledger.provenance.manifest import Manifest
from draftledger.provenance.natures import nature_of
from draftledger.provenance.store import Store


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the index: the rule and key of its recipe, and the manifests of each draw, oldest first."""

    rule: str
    key: str
    draws: list[list[Manifest]]

    @property
    def manifests(self) -> Iterator[Manifest]:
        """Yield the manifests of all draws."""
        return (manifest for draw in self.draws for manifest in draw)

    @property
    def drawn(self) -> bool:
        """Tell whether the rule is a draw, whose blobs are kept twice."""
        return nature_of(self.rule) == "draw"


def entries(store: Store) -> list[Path]:
    """Return the files of the index, sorted."""
    return sorted((store.root / "actions").glob("*.json"))


def read_entry(store: Store, path: Path) -> Entry:
    """Read one file of the index; raise CorruptError when it is unreadable or its recipe does not give its key."""
    draws = store.draws(path.stem)
    try:
        recipe = json.loads(path.read_bytes())["recipe"]
        rule = str(recipe["rule"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptError(f"{path}: unreadable ({error}); delete it and run again") from None
    if digest(recipe) != path.stem:
        raise CorruptError(f"{path}: its recipe does not give its key; delete it and run again")
    return Entry(rule, path.stem, draws)
