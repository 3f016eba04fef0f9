"""Run a script and stop this process at its n-th write: `killpoint.py POINT SIGNAL SCRIPT [ARGUMENT…]`.

A write point is a call that changes what lies in the working folder or the store. It is stopped before it, and a file
that is about to be synced is cut to half first, as a kill in the middle of its write would leave it. Point 0 stops
nothing. Every point that is reached is a line on stderr: `write point 3: replace .rounds.parquet.tmp`.
"""

import os
import runpy
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CALLS = ("mkdir", "fsync", "replace", "link", "utime", "unlink", "rmdir")


class Points:
    """Counts the calls, and sends the signal before the one that is asked for."""

    def __init__(self, wanted: int, number: int):
        self.wanted, self.number, self.count = wanted, number, 0
        self.homes = {Path.cwd().resolve(), Path("results/store").resolve()}

    def watched(self, name: str) -> Callable[..., Any]:
        """Return the call of that name, counted where it changes anything."""
        real = getattr(os, name)

        def call(target: Any, *arguments: Any, **options: Any) -> Any:
            path = _path(target, options.get("dir_fd"))
            if any(map(path.is_relative_to, self.homes)) and _changes(name, path):
                self._reach(name, path, target if name == "fsync" else None)
            return real(target, *arguments, **options)

        return call

    def _reach(self, name: str, path: Path, handle: int | None) -> None:
        self.count += 1
        print(f"write point {self.count}: {name} {path.name}", file=sys.stderr, flush=True)
        if self.count == self.wanted:
            if handle is not None:
                _cut(handle)
            os.kill(os.getpid(), self.number)


def _path(target: Any, folder: int | None) -> Path:
    if isinstance(target, int):
        return Path(os.readlink(f"/proc/self/fd/{target}"))
    path = Path(target if folder is None else f"/proc/self/fd/{folder}/{target}")
    return path.parent.resolve() / path.name


def _changes(name: str, path: Path) -> bool:
    match name:
        case "mkdir":
            return not path.exists()
        case "fsync":
            return path.is_file()
    return os.path.lexists(path)


def _cut(handle: int) -> None:
    found = os.fstat(handle)
    if found.st_nlink == 1:  # the bytes of a further link were synced under their first name
        os.truncate(f"/proc/self/fd/{handle}", found.st_size // 2)


def main() -> None:
    """Watch the calls and run the script as if it had been called itself."""
    point, number, *sys.argv = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
    points = Points(int(point), signal.Signals[number])
    for name in CALLS:
        setattr(os, name, points.watched(name))
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
