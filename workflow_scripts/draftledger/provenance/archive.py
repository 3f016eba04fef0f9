"""Check a release without unpacking it; needs the standard library alone: `python archive.py RELEASE.tar`."""

import argparse
import hashlib
import json
import os
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

SUMS, RECORD, RESULTS = "SHA256SUMS", "release.json", "results/"
MANIFEST, RECIPE, SCHEMA = ".manifest.json", ".recipe.json", 1
BLOCK, CHUNK = 512, 1 << 20
# What an honest release stays far below: these bound the memory that a hostile one can take.
MOST_MEMBERS, LONGEST_NAME, DEEPEST, LARGEST_PAX, LARGEST_TAIL = 100_000, 512, 12, 1 << 16, 1 << 20
LARGEST_SUMS, LARGEST_JSON = 1 << 25, 1 << 23
KINDS = {b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"5": "a folder"}
FAULTS = ("altered", "stale", "unexplained", "missing")
_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class RefusedError(Exception):
    """An archive is not a release of ours, or is not safe to read; the message is one line."""


class Finding(NamedTuple):
    """The state of one file (ok, altered, stale, unexplained, absent, missing), and why it is not ok."""

    path: str
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive: where its bytes begin, and how many they are."""

    name: str
    offset: int
    size: int


# --- reading ---------------------------------------------------------------------------------------------------------


def members(path: Path) -> dict[str, Member]:
    """Return the files of a release by their names inside its one top folder; no payload is read.

    Raises RefusedError unless every member is a plain file with a safe name that no other has, and the archive ends
    as it should.
    """
    if not path.is_file():
        raise RefusedError("no such file")
    found: dict[str, Member] = {}
    spellings: dict[str, tuple[str, bool]] = {}
    with open(path, "rb") as file:
        for member in _walk(file, os.fstat(file.fileno()).st_size):
            _claim(member.name, spellings)
            found[member.name] = member
            if len(found) > MOST_MEMBERS:
                raise RefusedError(f"more than {MOST_MEMBERS} members")
    tops = {name.partition("/")[0] for name in found}
    if len(tops) != 1 or not all("/" in name for name in found):
        raise RefusedError("its members do not lie in one folder")
    return {name.partition("/")[2]: member for name, member in found.items()}


def read_member(path: Path, member: Member, *, limit: int) -> bytes:
    """Return one file's bytes; raise RefusedError when they are more than `limit`."""
    if member.size > limit:
        raise RefusedError(f"{member.name}: {member.size} bytes, and at most {limit} may be read at once")
    with open(path, "rb") as file:
        return b"".join(_chunks(file, member))


def _chunks(file: BinaryIO, member: Member) -> Iterator[bytes]:
    file.seek(member.offset)
    left = member.size
    while left:
        chunk = file.read(min(CHUNK, left))
        if not chunk:
            raise RefusedError(f"{member.name}: cut short")
        left -= len(chunk)
        yield chunk


def _walk(file: BinaryIO, end: int) -> Iterator[Member]:
    """Yield the members in order; only plain files, and PAX headers with a path or a size, are let through."""
    place, pax = 0, dict[str, str]()
    while (header := _take(file, place, BLOCK)) != bytes(BLOCK):
        place += BLOCK
        kind, name, size = _header(header)
        if kind == b"x" and not pax and size <= LARGEST_PAX:
            pax = _pax(_take(file, place, size))
        elif kind == b"0":
            name, size = _checked_name(pax.get("path", name)), _number(pax.get("size", str(size)).encode(), base=10)
            if place + size > end:
                raise RefusedError(f"{name}: cut short, or its stated size of {size} bytes is false")
            yield Member(name, place, size)
            pax = {}
        elif kind == b"x":
            raise RefusedError("an extended header is too large, or follows another")
        else:
            raise RefusedError(f"{_shown(name)}: {KINDS.get(kind, 'not a plain file')}")
        place += -(-size // BLOCK) * BLOCK
    rest = end - place
    if pax or rest < 2 * BLOCK or rest > LARGEST_TAIL or any(_take(file, place, rest)):
        raise RefusedError("does not end as an archive does; it is cut short, or something was added")


def _take(file: BinaryIO, place: int, size: int) -> bytes:
    file.seek(place)
    data = file.read(size)
    if len(data) < size:
        raise RefusedError("cut short, or no archive at all")
    return data


def _header(block: bytes) -> tuple[bytes, str, int]:
    """Return kind, name and size of a POSIX header."""
    blank = block[:148] + b" " * 8 + block[156:]
    if block[257:265] != b"ustar\x0000" or _number(block[148:156]) != sum(blank):
        raise RefusedError("damaged, or not in the POSIX format that releases have")
    name, prefix = (_text(part.split(b"\0", 1)[0]) for part in (block[:100], block[345:500]))
    if _number(block[100:108]) & 0o7000:
        raise RefusedError(f"{_shown(name)}: has a set-user-ID, set-group-ID or sticky bit")
    return block[156:157], f"{prefix}/{name}" if prefix else name, _number(block[124:136])


def _number(data: bytes, *, base: int = 8) -> int:
    text = data.rstrip(b" \0")
    if not re.fullmatch(rb"[0-7]{1,12}" if base == 8 else rb"[0-9]{1,15}", text):
        raise RefusedError("a header holds no number, or one that is too large")
    return int(text, base)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise RefusedError("a name is not UTF-8") from None


def _pax(data: bytes) -> dict[str, str]:
    fields: dict[str, str] = {}
    while data:
        match = re.match(rb"([1-9][0-9]{0,5}) ([^=]+)=", data)
        record = data[: int(match[1])] if match else b""
        key = match[2] if match else b""
        if not match or len(record) != int(match[1]) or record[-1:] != b"\n" or key not in (b"path", b"size"):
            raise RefusedError("an extended header states more than a path and a size, or is damaged")
        fields[key.decode()] = _text(record[match.end() : -1])
        data = data[len(record) :]
    return fields


def _checked_name(name: str) -> str:
    steps = name.split("/")
    strange = not name.isprintable() or re.search(r"[\\:]", name) or not {"", ".", ".."}.isdisjoint(steps)
    if strange or len(name.encode()) > LONGEST_NAME or len(steps) > DEEPEST:
        raise RefusedError(f"{_shown(name)}: absolute, leading elsewhere, or not a safe name")
    return name


def _claim(name: str, spellings: dict[str, tuple[str, bool]]) -> None:
    """Refuse a name that some file system cannot tell from one that was there, or that lies in a file."""
    steps = name.split("/")
    for depth in range(1, len(steps) + 1):
        part, is_file = "/".join(steps[:depth]), depth == len(steps)
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", part).casefold())
        known = spellings.get(folded)
        if known is not None and (is_file or known != (part, False)):
            raise RefusedError(f"{_shown(name)}: collides with {_shown(known[0])}")
        spellings[folded] = (part, is_file)


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 80 else text[:80] + "...")


# --- checking --------------------------------------------------------------------------------------------------------


def verify_archive(path: Path, *, expect: str | None = None) -> list[Finding]:
    """Hash every file of a release, then follow its ledger, manifests and recipes; nothing is unpacked.

    `expect` is the published root digest. A refused archive is one finding, *altered*, that says why.
    """
    try:
        if expect is not None and not _DIGEST.fullmatch(expect):
            raise RefusedError("the published root digest is 64 lower-case hexadecimal digits")
        return _Check(path, members(path)).findings(expect)
    except RefusedError as error:
        return [Finding(str(path), "altered", f"refused: {error}")]


def parse_sums(data: bytes, *, where: str) -> dict[str, str]:
    """Return every file's digest by its name; raise RefusedError at a line that is no digest and new, safe name."""
    found: dict[str, str] = {}
    for number, line in enumerate(_text(data).removesuffix("\n").split("\n"), start=1):
        match = _LINE.fullmatch(line)
        if match is None or match[2] in found:
            raise RefusedError(f"{where} line {number}: not one lower-case digest and one new name")
        found[_checked_name(match[2])] = match[1]
    return found


@dataclass(slots=True)
class _Check:
    path: Path
    files: dict[str, Member]
    sums: dict[str, str] = field(default_factory=dict)
    ledger: dict[str, str] = field(default_factory=dict)
    manifests: dict[str, dict[str, Any]] = field(default_factory=dict)
    faults: dict[str, Finding] = field(default_factory=dict)

    def findings(self, expect: str | None) -> list[Finding]:
        """Return one finding a file, sorted."""
        self.sums = parse_sums(self._read(SUMS, LARGEST_SUMS), where=SUMS)
        record, ledger = self._json(RECORD), self._read(RESULTS + SUMS, LARGEST_SUMS)
        if record.get("schema") != SCHEMA:
            raise RefusedError(
                f"{RECORD}: schema {record.get('schema')!a:.20} is not {SCHEMA}; use the release it is of"
            )
        self.ledger = {RESULTS + name: digest for name, digest in parse_sums(ledger, where=RESULTS + SUMS).items()}
        self._root(hashlib.sha256(ledger).hexdigest(), record.get("root_digest"), expect)
        left_out = found if isinstance(found := record.get("left_out"), dict) else {}
        for name in {*self.files, *self.sums, *self.ledger} - {SUMS}:
            self._bytes(name, left_out=name in left_out and not name.endswith((MANIFEST, RECIPE)))
        roles = sorted(name.removesuffix(MANIFEST) for name in self.ledger if name.endswith(MANIFEST))
        for check, suffix in ((self._manifest, MANIFEST), (self._recipe, RECIPE)):
            for role in roles:
                self._try(check, role, suffix)
        whole = [Finding(name, "ok") for name in self.files.keys() - self.faults.keys()]
        return sorted([*whole, *self.faults.values()])

    def _fault(self, name: str, state: str, reason: str) -> None:
        self.faults.setdefault(name, Finding(name, state, reason))

    def _read(self, name: str, limit: int = LARGEST_JSON) -> bytes:
        if name not in self.files:
            raise RefusedError(f"{name}: not there")
        return read_member(self.path, self.files[name], limit=limit)

    def _json(self, name: str) -> dict[str, Any]:
        try:
            value = json.loads(self._read(name))
        except (ValueError, RecursionError):
            raise RefusedError(f"{name}: not JSON that can be read") from None
        if not isinstance(value, dict):
            raise RefusedError(f"{name}: not a JSON object")
        return value

    def _root(self, root: str, recorded: object, expect: str | None) -> None:
        named = _DIGEST.search(self.path.name)
        stated = {RECORD: recorded, "the archive's name": named and named[0], "the published root digest": expect}
        for where, digest in stated.items():
            if digest not in (None, root):
                self._fault(RESULTS + SUMS, "altered", f"its sha256 is {root}, and not that of {where}")

    def _bytes(self, name: str, *, left_out: bool) -> None:
        """Hold one file to both lists: what is under results/ stands in the ledger too."""
        listed = {SUMS: self.sums.get(name)}
        if name in self.ledger or (name.startswith(RESULTS) and not name.startswith(RESULTS + SUMS)):
            listed[RESULTS + SUMS] = self.ledger.get(name)
        if name not in self.files:
            words = "left out, as release.json says" if left_out else "listed, but not packed"
            self._fault(name, "absent" if left_out and name not in self.sums else "missing", words)
        elif None in listed.values():
            self._fault(name, "unexplained", f"not in {', '.join(key for key, value in listed.items() if not value)}")
        elif wrong := [key for key, value in listed.items() if value != self._digest(name)]:
            self._fault(name, "altered", f"differs from {', '.join(wrong)}")

    def _digest(self, name: str) -> str:
        seal = hashlib.sha256()
        with open(self.path, "rb") as file:
            for chunk in _chunks(file, self.files[name]):
                seal.update(chunk)
        return seal.hexdigest()

    def _try(self, check: Callable[[str], None], role: str, suffix: str) -> None:
        name = role + suffix
        try:
            if name not in self.faults:
                check(role)
        except RefusedError as error:
            self._fault(name, "altered", str(error).removeprefix(f"{name}: "))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            self._fault(name, "altered", "does not say what it should")

    def _manifest(self, role: str) -> None:
        manifest = self._json(role + MANIFEST)
        if manifest["schema"] != SCHEMA:
            raise RefusedError(f"schema {manifest['schema']!a:.20} is not {SCHEMA}")
        size = manifest["bytes"] if role in self.faults else self.files[role].size
        if (manifest["sha256"], manifest["bytes"]) != (self.ledger.get(role), size):
            raise RefusedError("does not describe its payload")
        self.manifests[role] = manifest

    def _recipe(self, role: str) -> None:
        recipe = self._json(role + RECIPE)
        if recipe["schema"] != SCHEMA:
            raise RefusedError(f"schema {recipe['schema']!a:.20} is not {SCHEMA}")
        if recipe["key"] != _digest_of({key: recipe[key] for key in ("rule", "spec", "code", "environment", "inputs")}):
            raise RefusedError("does not give its own key")
        inputs = {item["role"]: item["content"] for item in recipe["inputs"]}
        if recipe["environment"] is not None:
            inputs["environment.json"] = recipe["environment"]
        for source, content in inputs.items():
            if RESULTS + source in self.ledger:
                known = self.manifests.get(RESULTS + source, {}).get("content", content)
            else:
                known = self._outside(source)
            if known is None:
                self._fault(_shown(source), "absent", "an input from outside the results, not packed")
            elif known != content:
                self._fault(role, "stale", f"made from another {_shown(source)}")

    def _outside(self, name: str) -> str | None:
        """Return the content digest of a file from outside the results, such as the prompts, if it is packed."""
        return _digest_of(self._json(name)) if name.endswith(".json") and name in self.files else self.sums.get(name)


def _digest_of(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def main(arguments: list[str]) -> int:
    """Check one release and say what is not as it was; return 1 if anything speaks against it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--expect", metavar="DIGEST", help="the published root digest")
    options = parser.parse_args(arguments)
    found = verify_archive(options.archive, expect=options.expect)
    for finding in found:
        if finding.state != "ok":
            print(f"{finding.state}: {finding.path}: {finding.reason}")
    print(", ".join(f"{number} {state}" for state, number in Counter(item.state for item in found).items()))
    return 1 if any(finding.state in FAULTS for finding in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
