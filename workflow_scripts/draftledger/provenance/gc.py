"""Empty a store of what no results name any more; what a manifest or recipe names always stays."""

import fcntl
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from draftledger.errors import ConfigError
from draftledger.provenance.graph import Folder, homes, read_graph
from draftledger.provenance.index import entries, read_entry
from draftledger.provenance.store import Store

DAY = 86_400  # seconds


@dataclass(frozen=True, slots=True)
class Garbage:
    """What a store may lose: blobs, entries of the index, folders of checkpoints.

    `draws` is how many trainings and timings are among them, which cannot be made again; `bytes` what the disk gains.
    """

    blobs: tuple[Path, ...]
    actions: tuple[Path, ...]
    partial: tuple[Path, ...]
    draws: int
    bytes: int

    def drop(self) -> None:
        """Remove it all: the index first, so that a kill leaves no entry without its blobs."""
        for path in (*self.actions, *self.blobs):
            path.unlink(missing_ok=True)
        for path in self.partial:
            shutil.rmtree(path, ignore_errors=True)


def garbage(roots: Iterable[Path], store: Store, *, days: float) -> Garbage:
    """Find what no manifest or recipe under `roots` names, and checkpoints that are untouched for so many days.

    All draws of a recipe that is named stay. Raises CorruptError for an unreadable manifest, recipe or entry of the
    index, and ConfigError when nothing is named at all or jobs are running: then nothing may be dropped.
    """
    if running := list(_running(store)):
        raise ConfigError(f"{running[0]}: a job is running; wait for it, then try again")
    graphs = [read_graph(Folder(home)) for root in roots for home in homes(root)]
    artefacts = [artefact for graph in graphs for artefact in graph.artefacts.values()]
    if not artefacts:
        raise ConfigError(f"{store.root}: no results name anything in it; name all results, or delete the folder")
    keys = {artefact.recipe.key for artefact in artefacts if artefact.recipe}
    kept = {artefact.manifest.sha256 for artefact in artefacts}
    actions, draws = [], 0
    for path in entries(store):
        entry = read_entry(store, path)
        if entry.key in keys:
            kept |= {item.sha256 for item in entry.manifests}
        else:
            actions.append(path)
            draws += len(entry.draws) * entry.drawn
    found = [path for kind in ("blobs", "spares") for path in sorted((store.root / kind).glob("*/*"))]
    blobs = [path for path in found if path.name not in kept]
    partial = [path for path in sorted((store.root / "partial").glob("*")) if _age(path) > days * DAY]
    freed = sum(path.stat().st_size for path in (*blobs, *actions, *_inside(partial)) if path.stat().st_nlink == 1)
    return Garbage(tuple(blobs), tuple(actions), tuple(partial), draws, freed)


def _running(store: Store) -> Iterator[Path]:
    for path in (store.root / "scratch").glob("*.lock"):
        with open(path) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield path


def _age(folder: Path) -> float:
    return time.time() - max(path.stat().st_mtime for path in (folder, *_inside([folder])))


def _inside(folders: Iterable[Path]) -> list[Path]:
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]
