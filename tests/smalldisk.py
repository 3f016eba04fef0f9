"""A file system of a size we choose, to fill."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PAGE = 4096


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mount a tmpfs on a new folder; skip the test where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this user may not mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def leave(folder: Path, pages: int) -> None:
    """Resize the file system so that so many pages are free."""
    seen = os.statvfs(folder)
    used = (seen.f_blocks - seen.f_bfree) * seen.f_frsize
    subprocess.run(["mount", "-o", f"remount,size={used + pages * PAGE}", str(folder)], check=True)
