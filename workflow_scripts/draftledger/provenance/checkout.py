"""What version control says of the files that a release was made with."""

import subprocess
from pathlib import Path
from typing import Any

UNKNOWN_DATE = "1970-01-01"


def checkout(home: Path) -> dict[str, Any]:
    """Return the commit, its date, and every file that differs from it; without version control all is unknown."""
    head = _git(home, "log", "-1", "--format=%H %cs")
    if not head:
        return {"commit": None, "date": UNKNOWN_DATE, "dirty": ["not under version control"]}
    commit, date = head.split()
    changes = _git(home, "status", "--porcelain", "--untracked-files=all", "--", ".") or ""
    return {"commit": commit, "date": date, "dirty": changes.splitlines()}


def _git(home: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(home), "-c", "core.quotePath=true", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.rstrip("\n")
    except (OSError, subprocess.CalledProcessError):
        return None
