"""Writes that are whole or absent, also after a power cut: temporary name, fsync, rename, fsync of the folder."""

import errno
import glob
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a name beside `path` to write a file under; it becomes `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield scratch
        move(scratch, path)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk is told without a name
        raise
    finally:
        scratch.unlink(missing_ok=True)


def move(source: Path, target: Path) -> None:
    """Move a finished file within a file system: its bytes are on the disk before its new name is."""
    target.parent.mkdir(parents=True, exist_ok=True)
    _sync(source)
    os.replace(source, target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync a folder
            raise
    finally:
        os.close(handle)


def sweep(path: Path) -> None:
    """Remove what killed writers of a file, or of its records, left beside it."""
    for scratch in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        scratch.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old bytes or the new ones, never a part."""
    with replacing(path) as scratch:
        scratch.write_bytes(data)


def json_bytes(value: Any) -> bytes:
    """Return plain JSON as it is written: sorted keys, one-space indent, newline at the end, no NaN."""
    return (json.dumps(value, sort_keys=True, indent=1, ensure_ascii=True, allow_nan=False) + "\n").encode()


def write_json(path: Path, value: Any) -> None:
    """Write plain JSON atomically, in its one form."""
    write_bytes(path, json_bytes(value))
