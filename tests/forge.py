"""Results made by hand: artefacts with manifests and recipes that agree, without running anything."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from draftledger.provenance.atomic import write_json
from draftledger.provenance.ledger import sums
from draftledger.provenance.manifest import describe, read_manifest, write_manifest
from draftledger.provenance.recipe import Input, Recipe, recipe_path, recipe_record


def table(**columns: list) -> bytes:
    """Return a Parquet file of these columns."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


class Home:
    """A folder of results: `add` makes an artefact from those that were added before."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def recipe(
        self, rule="decode", *, spec=None, code="c0", reads=(), outside: Mapping[str, str] | None = None
    ) -> Recipe:
        """Return the recipe of a job that reads these artefacts, and files outside by content."""
        contents = {role: read_manifest(self.folder / role).content for role in reads} | dict(outside or {})
        environment = contents.pop("environment.json", None)
        inputs = tuple(Input(role, contents[role]) for role in sorted(contents))
        return Recipe(rule, spec or {}, code, environment, inputs)

    def add(self, role: str, text: str | bytes = "text", *, draw=0, **recipe: Any) -> Path:
        """Write an artefact; its recipe is made of the other arguments."""
        path = self.folder / role
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        write_json(recipe_path(path), recipe_record(self.recipe(**recipe), draw=draw))
        write_manifest(path, describe(path))
        return path

    def ledger(self) -> Path:
        """Write SHA256SUMS over everything there is, as the rule does."""
        suffix = ".manifest.json"
        found = sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob(f"*{suffix}"))
        roles = [name.removesuffix(suffix) for name in found if not name.startswith("SHA256SUMS")]
        text = sums({role: self.folder / role for role in roles})
        return self.add("SHA256SUMS", text, rule="ledger", reads=roles)
