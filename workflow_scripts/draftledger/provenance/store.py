"""The content-addressed store: blobs by digest, actions by recipe key, and how files get in and out whole."""

import errno
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from draftledger.errors import CorruptError
from draftledger.provenance.atomic import move, replacing
from draftledger.provenance.digest import file_digest
from draftledger.provenance.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Store:
    """Blobs and the action index under one folder."""

    root: Path

    def blob(self, sha256: str) -> Path:
        """Return where the blob of that digest lies."""
        return self.root / "blobs" / sha256[:2] / sha256

    def action(self, key: str) -> Path:
        """Return the index entry of an action key."""
        return self.root / "actions" / f"{key}.json"

    def spare(self, sha256: str) -> Path:
        """Return where the second copy of a draw's blob lies: Snakemake deletes outputs before a job could use them."""
        return self.root / "spares" / sha256[:2] / sha256

    def copies(self, sha256: str, *, twice: bool) -> list[Path]:
        """Return where a blob lies; `twice` for a draw's, which cannot be made again and is kept as two files."""
        return [self.blob(sha256), self.spare(sha256)] if twice else [self.blob(sha256)]

    def whole(self, sha256: str) -> bool:
        """Tell whether the blob is there and still has its digest."""
        return _has_digest(self.blob(sha256), sha256)

    def put(self, source: Path, sha256: str, *, twice: bool) -> None:
        """Move a finished file into the store; mode 0644, because Snakemake refuses read-only outputs."""
        source.chmod(0o644)
        if twice:
            _copy(source, self.spare(sha256), folder=source.parent)
        move(source, self.blob(sha256))

    def mend(self, sha256: str, *, twice: bool, also: Path, folder: Path) -> bool:
        """Make every copy of a blob whole from one that is, or from the file `also`; false when none is."""
        copies = self.copies(sha256, twice=twice)
        whole = [path for path in copies if _has_digest(path, sha256)]
        damaged = [path for path in copies if path not in whole]
        if damaged:
            source = next((path for path in (*whole, also) if _has_digest(path, sha256)), None)
            if source is None:
                return False
            for path in damaged:
                _copy(source, path, folder=folder)
        return True

    def partial(self, key: str, draw: int) -> Path:
        """Return the folder where the unfinished job of a recipe's next draw keeps its checkpoints."""
        return self.root / "partial" / f"{key}-{draw}"

    def draws(self, key: str) -> list[list[Manifest]]:
        """Return the manifests of every draw of an action, oldest first."""
        path = self.action(key)
        try:
            draws = json.loads(path.read_text())["draws"] if path.is_file() else []
            return [[Manifest(**item) for item in draw] for draw in draws]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptError(f"{path}: unreadable ({error}); delete it and run again") from None

    def place(self, sha256: str, target: Path, *, twice: bool) -> None:
        """Put a blob at its path: as a hard link, a draw's to its second copy; as a copy across file systems.

        A file that is linked elsewhere is copied, so that a fresh time stamp never reaches another artefact.
        """
        source = self.copies(sha256, twice=twice)[-1]
        with replacing(target) as scratch:
            own = 1 + (target.is_file() and target.samefile(source))
            if source.stat().st_nlink > own or not _linked(source, scratch):
                shutil.copyfile(source, scratch)
            os.utime(scratch)


def _has_digest(path: Path, sha256: str) -> bool:
    return path.is_file() and file_digest(path) == sha256


def _copy(source: Path, target: Path, *, folder: Path) -> None:
    scratch = folder / f".{target.name}"
    shutil.copyfile(source, scratch)
    scratch.chmod(0o644)
    move(scratch, target)


def _linked(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            return False
        raise
    return True
