"""The ledger: one line a file, over every payload, its manifest and its recipe."""

from collections.abc import Mapping
from pathlib import Path

from draftledger.provenance.digest import file_digest
from draftledger.provenance.manifest import manifest_path
from draftledger.provenance.recipe import recipe_path


def sums(payloads: Mapping[str, Path]) -> str:
    """Return `sha256  name` lines, sorted by name; names are relative to the results folder."""
    lines = []
    for role, payload in payloads.items():
        for path in (payload, manifest_path(payload), recipe_path(payload)):
            lines.append((str(Path(role).parent / path.name), file_digest(path)))
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(lines))
