"""The check of one experiment's results: first the bytes of every file, then whether each artefact is explained."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from draftledger.errors import CorruptError
from draftledger.provenance.atomic import json_bytes
from draftledger.provenance.digest import content_digest, file_digest
from draftledger.provenance.findings import Finding
from draftledger.provenance.graph import MANIFEST, RECIPE, RELEASE_RECORD, RUN, Folder, outside
from draftledger.provenance.ledger import NAME, parse_sums
from draftledger.provenance.manifest import Manifest, describe, parse_manifest
from draftledger.provenance.natures import nature_of
from draftledger.provenance.recipe import Input, Recipe, parse_recipe, recipe_record


@dataclass(slots=True)
class Inspection:
    """One results folder, and what is learnt of it on the way; `base` is where inputs outside it are looked up."""

    folder: Path
    base: Path
    unchecked: set[str] = field(default_factory=set)
    _files: set[str] = field(default_factory=set)
    _sums: dict[str, str] = field(default_factory=dict)
    _manifests: dict[str, Manifest] = field(default_factory=dict)
    _recipes: dict[str, Recipe] = field(default_factory=dict)
    _outside: dict[str, str | None] = field(default_factory=dict)
    _left_out: set[str] = field(default_factory=set)

    def findings(self) -> Iterator[Finding]:
        """Yield one finding for every artefact, or one for each of its files that is not as it was."""
        self._left_out = _left_out(self.folder)
        self._files = {name for name in Folder(self.folder).names() if not name.endswith(RUN)}
        faults = {NAME: list(self._ledger_faults())} if NAME in self._files else {}
        roles = {name.removesuffix(MANIFEST).removesuffix(RECIPE) for name in (*self._files, *self._sums)}
        faults |= {role: list(self._faults(role)) for role in sorted(roles - {NAME})}
        faulty = {role for role, found in faults.items() if found}
        for role, found in sorted(faults.items()):
            yield from found or [self._explained(role, faulty)]

    # --- bytes ---------------------------------------------------------------------------------------------------

    def _ledger_faults(self) -> Iterator[Finding]:
        """Read SHA256SUMS; a damaged one is named, and not held against the files that it lists."""
        faults = list(self._faults(NAME))
        try:
            self._sums = {} if faults else parse_sums((self.folder / NAME).read_text())
        except (CorruptError, UnicodeDecodeError) as error:
            faults = [Finding(str(self.folder / NAME), "altered", str(error))]
        yield from faults

    def _faults(self, role: str) -> Iterator[Finding]:
        for suffix, check in ((MANIFEST, self._manifest), (RECIPE, self._recipe), ("", self._payload)):
            path = self.folder / (role + suffix)
            if role + suffix in self._files:
                if reason := check(role, path):
                    yield Finding(str(path), "altered", reason)
            elif suffix and role + suffix in self._sums:
                yield Finding(str(path), "missing", f"{NAME} names it")

    def _manifest(self, role: str, path: Path) -> str | None:
        try:
            manifest = parse_manifest(path.read_bytes(), where=path)
        except CorruptError as error:
            return str(error)
        if not (reason := self._rewritten(role + MANIFEST, asdict(manifest))):
            self._manifests[role] = manifest
        return reason

    def _recipe(self, role: str, path: Path) -> str | None:
        try:
            recipe, draw = parse_recipe(path.read_bytes(), where=path)
        except CorruptError as error:
            return str(error)
        if not (reason := self._rewritten(role + RECIPE, recipe_record(recipe, draw=draw))):
            self._recipes[role] = recipe
        return reason

    def _rewritten(self, name: str, fields: dict[str, Any]) -> str | None:
        data = (self.folder / name).read_bytes()
        if self._sums.get(name) not in (None, hashlib.sha256(data).hexdigest()):
            return f"differs from {NAME}"
        return None if data == json_bytes(fields) else "is not in the form in which it was written"

    def _payload(self, role: str, path: Path) -> str | None:
        manifest, wanted = self._manifests.get(role), self._sums.get(role)
        if wanted and (manifest is None or manifest.sha256 != wanted):
            return None if file_digest(path) == wanted else f"differs from {NAME}"
        if manifest is None:
            return None
        try:
            found = describe(path)
        except CorruptError:
            return "differs from its manifest"
        if found.sha256 != manifest.sha256:
            return "differs from its manifest"
        return None if found == manifest else f"{path.name}{MANIFEST} does not describe it"

    # --- explanation ---------------------------------------------------------------------------------------------

    def _explained(self, role: str, faulty: set[str]) -> Finding:
        """Return the finding of an artefact whose files are as they were written."""
        path, recipe = str(self.folder / role), self._recipes.get(role)
        if role not in self._manifests:
            known = recipe is not None
            words = "no manifest says what it is" if known else f"no manifest, recipe or {NAME} names it"
            return Finding(path, "unexplained" if known else "orphan", words)
        if recipe is None:
            return Finding(path, "unexplained", "no recipe says how it was made")
        if role not in self._files:
            return self._gone(role, recipe)
        for item in recipe.reads:
            if item.role not in faulty and (finding := self._made_from(path, recipe, item)):
                return finding
        if self._sums and role not in self._sums and NAME not in {item.role for item in recipe.inputs} and role != NAME:
            return Finding(path, "orphan", f"{NAME} does not name it")
        return Finding(path, "ok")

    def _gone(self, role: str, recipe: Recipe) -> Finding:
        path = str(self.folder / role)
        if role in self._left_out:
            return Finding(path, "absent", f"left out, as {RELEASE_RECORD} says")
        if nature_of(recipe.rule) == "draw":
            return Finding(path, "missing", "a draw: its rule would make another one")
        return Finding(path, "absent", "its rule makes it again")

    def _made_from(self, path: str, recipe: Recipe, item: Input) -> Finding | None:
        known = self._manifests.get(item.role)
        content = known.content if known else self._content_outside(item.role)
        if content == item.content:
            return None
        if content is not None:
            return Finding(path, "stale", f"made from another {item.role}; run its rule again")
        if outside(recipe, item.role):
            self.unchecked.add(item.role)
            return None
        return Finding(path, "unexplained", f"made from {item.role}, which nothing here describes")

    def _content_outside(self, role: str) -> str | None:
        if role not in self._outside:
            path = self.base / role
            self._outside[role] = content_digest(path) if path.is_file() else None
        return self._outside[role]


def _left_out(folder: Path) -> set[str]:
    """Return what an unpacked release leaves out of its results, by the record beside them."""
    try:
        found = json.loads((folder.parent / RELEASE_RECORD).read_bytes())["left_out"]
        return {name.removeprefix(f"{folder.name}/") for name in found if isinstance(name, str)}
    except FileNotFoundError:
        return set()
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptError(
            f"{folder.parent / RELEASE_RECORD}: unreadable ({error}); unpack the release again"
        ) from None
