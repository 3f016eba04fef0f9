"""The ledger: one line a file, over every payload, its manifest and its recipe."""

import re
from collections.abc import Mapping
from pathlib import Path

from draftledger.errors import CorruptError
from draftledger.provenance.digest import file_digest
from draftledger.provenance.manifest import manifest_path
from draftledger.provenance.recipe import recipe_path

NAME = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")


def sums(payloads: Mapping[str, Path]) -> str:
    """Return `sha256  name` lines, sorted by name; names are relative to the results folder."""
    lines = []
    for role, payload in payloads.items():
        for path in (payload, manifest_path(payload), recipe_path(payload)):
            lines.append((str(Path(role).parent / path.name), file_digest(path)))
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(lines))


def parse_sums(text: str) -> dict[str, str]:
    """Return every file's digest by its name; raise CorruptError for a line without one, or a name that is twice."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.fullmatch(line)
        if match is None or match[2] in found:
            raise CorruptError(f"{NAME} line {number}: not one digest and one new name; get the file again")
        found[match[2]] = match[1]
    return found
