"""Scratch folders with one holder at a time: locked while in use, swept by whoever comes next."""

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """Yield an empty folder of that name under `parent`, this process's alone until it is removed at the end.

    Another process that asks for the same name waits. What killed processes left under `parent` is swept.
    """
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(parent)
    with _held(parent / f"{name}.lock"):
        folder = parent / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold the lock file at `path`, which its holder removes: whoever waited for a removed one makes another."""
    while True:
        with open(path, "a") as lock:
            _wait(lock, path)
            if _current(lock, path):
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return


def _wait(lock: IO[str], path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"draftledger: {path}: another process is at the same work; waiting for it", file=sys.stderr)
        fcntl.flock(lock, fcntl.LOCK_EX)


def _current(lock: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _sweep(parent: Path) -> None:
    for path in parent.glob("*.lock"):
        with suppress(OSError), open(path) as lock:  # in use, just removed, or another user's
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _current(lock, path):
                shutil.rmtree(path.with_suffix(""), ignore_errors=True)
                path.unlink()
