"""A look at the artefacts without reading them: which are absent, which changed since they were written."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from draftledger.provenance.manifest import manifest_path


@dataclass(frozen=True, slots=True)
class Glance:
    """How many artefacts there should be, and which are absent or newer than their manifest or of another size."""

    total: int
    absent: tuple[str, ...]
    changed: tuple[str, ...]

    def line(self) -> str:
        """Return the one line that a dry-run shows."""
        named = ", ".join(self.changed[:3]) + (" …" if len(self.changed) > 3 else "")
        told = f"ledger: {self.total} artefacts, {len(self.absent)} absent, {len(self.changed)} changed since written"
        return f"{told}: {named}" if self.changed else told


def glance(payloads: Sequence[str]) -> Glance:
    """Compare size and time stamp of every payload with its manifest; nothing is hashed and nothing written."""
    absent, changed = [], []
    for payload in payloads:
        state = _state(Path(payload))
        (absent if state == "absent" else changed if state == "changed" else []).append(payload)
    return Glance(len(payloads), tuple(absent), tuple(changed))


def _state(payload: Path) -> str:
    try:
        seen, written = os.stat(payload), os.stat(manifest_path(payload))
        text = manifest_path(payload).read_bytes()
    except FileNotFoundError:
        return "absent"
    same = seen.st_mtime_ns <= written.st_mtime_ns and b'"bytes": %d,' % seen.st_size in text
    return "ok" if same else "changed"
