"""Scratch folders that vanish with their process: locked while in use, swept by whoever comes next."""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Yield a fresh folder under `parent` and remove it afterwards; sweep what killed processes left there."""
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(parent)
    holder = Path(tempfile.mkdtemp(dir=parent))
    with open(holder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = holder / "work"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(holder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    for holder in parent.iterdir():
        try:
            with open(holder / "lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(holder, ignore_errors=True)
        except (BlockingIOError, FileNotFoundError, NotADirectoryError):
            continue  # in use, or being made or removed by another job this moment
