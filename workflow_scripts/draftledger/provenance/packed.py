"""The results inside a release, read like a folder of results: file by file, each checked, nothing unpacked."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from draftledger.errors import CorruptError
from draftledger.provenance.archive import (
    LARGEST_SUMS,
    RESULTS,
    SUMS,
    Member,
    RefusedError,
    members,
    parse_sums,
    read_member,
)
from draftledger.provenance.graph import Files, Folder, one_home

LARGEST = 1 << 30  # bytes of a file that is read at once


@dataclass(frozen=True, slots=True)
class Packed:
    """The files under `results/` of a release, and the digests that its SHA256SUMS gives them."""

    path: Path
    members: dict[str, Member]
    sums: dict[str, str]

    def names(self) -> list[str]:
        """Return every file's name in the folder of the results, sorted."""
        return sorted(name.removeprefix(RESULTS) for name in self.members if name.startswith(RESULTS))

    def read(self, name: str) -> bytes:
        """Return one file's bytes; raise CorruptError when they are not what SHA256SUMS says."""
        member = self.members.get(RESULTS + name)
        if member is None:
            raise CorruptError(f"{self.path}: holds no {name}; its level leaves it out")
        try:
            data = read_member(self.path, member, limit=LARGEST)
        except RefusedError as error:
            raise CorruptError(f"{self.path}: {error}") from None
        if hashlib.sha256(data).hexdigest() != self.sums.get(RESULTS + name):
            raise CorruptError(f"{self.path}: {name} differs from {SUMS}; get the release again")
        return data


def open_release(path: Path) -> Packed:
    """Open a release; raise CorruptError when it is refused."""
    try:
        found = members(path)
        if SUMS not in found:
            raise RefusedError(f"holds no {SUMS}")
        return Packed(path, found, parse_sums(read_member(path, found[SUMS], limit=LARGEST_SUMS), where=SUMS))
    except RefusedError as error:
        raise CorruptError(f"{path}: refused: {error}") from None


def open_results(path: Path) -> Files:
    """Open results for reading: a release, or the one results folder at or under a path."""
    return open_release(path) if path.is_file() else Folder(one_home(path))
