"""A look at the artefacts without reading them: which are absent, which changed since they were written."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from draftledger.provenance.manifest import manifest_path

NAMED = 3  # changed artefacts that the line names


@dataclass(frozen=True, slots=True)
class Seen:
    """One artefact at a glance; `content` is the digest that its manifest gives, null when it is absent or changed."""

    state: Literal["ok", "absent", "changed"]
    content: str | None = None


@dataclass(frozen=True, slots=True)
class Glance:
    """Every artefact that there should be, at a glance."""

    seen: dict[str, Seen]

    def named(self, state: str) -> list[str]:
        """Return the artefacts in a state."""
        return [path for path, seen in self.seen.items() if seen.state == state]

    def line(self) -> str:
        """Return the line that a dry-run shows."""
        changed = self.named("changed")
        told = f"ledger: {len(self.seen)} artefacts, {len(self.named('absent'))} absent, {len(changed)} changed"
        if not changed:
            return told
        since = "it was" if len(changed) == 1 else "they were"
        return f"{told} since {since} written: {', '.join(changed[:NAMED])}{' …' if len(changed) > NAMED else ''}"


def glance(payloads: Sequence[str]) -> Glance:
    """Compare size and time stamp of every payload with its manifest; no payload is read and nothing written."""
    return Glance({payload: _look(Path(payload)) for payload in payloads})


def _look(payload: Path) -> Seen:
    beside = manifest_path(payload)
    try:
        seen, written = os.stat(payload), os.stat(beside)
        manifest = json.loads(beside.read_bytes())
        if seen.st_mtime_ns <= written.st_mtime_ns and manifest["bytes"] == seen.st_size:
            return Seen("ok", manifest["content"])
    except FileNotFoundError:
        return Seen("absent")
    except (ValueError, KeyError, TypeError, RecursionError):
        return Seen("changed")
    return Seen("changed")
