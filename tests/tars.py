"""Tar files made block by block, so that each can be wrong in one way, and releases rewritten file by file."""

import hashlib
import tarfile
from collections.abc import Mapping
from pathlib import Path

from draftledger.provenance.tar import write_tar

ZEROS = bytes(1024)


def header(name: str | bytes, size: int | bytes = 0, *, kind=b"0", mode=0o644, magic=b"ustar\x0000") -> bytes:
    """Return one POSIX header block with its checksum."""
    raw = name if isinstance(name, bytes) else name.encode()
    length = size if isinstance(size, bytes) else b"%011o\0" % size
    fields = [raw.ljust(100, b"\0"), b"%07o\0" % mode, b"0000000\0" * 2, length, b"00000000000\0", b" " * 8]
    block = b"".join([*fields, kind, bytes(100), magic]).ljust(512, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def member(name: str | bytes, data: bytes = b"x", **fields) -> bytes:
    """Return a header and its data, padded."""
    return header(name, len(data), **fields) + data + bytes(-len(data) % 512)


def extended(*records: tuple[str, str], stated: int | None = None) -> bytes:
    """Return a PAX header with these records; `stated` is a false size of it."""
    data = b""
    for key, value in records:
        body = f" {key}={value}\n".encode()
        length = len(body)
        while len(str(length)) + len(body) != length:
            length = len(str(length)) + len(body)
        data += str(length).encode() + body
    return header("PaxHeader", len(data) if stated is None else stated, kind=b"x") + data + bytes(-len(data) % 512)


def contents(path: Path) -> dict[str, bytes]:
    """Return every file of a release by its name in the top folder."""
    with tarfile.open(path) as archive:
        found = {item.name: archive.extractfile(item) for item in archive}
        return {name.partition("/")[2]: file.read() for name, file in found.items() if file}


def rewrite(source: Path, target: Path, changes: Mapping[str, bytes | None], *, sums: bool = True) -> Path:
    """Write a release again with some files changed, added or left out; `sums` makes its SHA256SUMS fit."""
    files = {name: data for name, data in {**contents(source), **changes}.items() if data is not None}
    if sums:
        lines = sorted((name, hashlib.sha256(data).hexdigest()) for name, data in files.items() if name != "SHA256SUMS")
        files["SHA256SUMS"] = "".join(f"{digest}  {name}\n" for name, digest in lines).encode()
    write_tar(target, files, top="top")
    return target
