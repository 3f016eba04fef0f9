"""The content-addressed store: blobs by digest, actions by recipe key, and the one function that fills it."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from draftledger.errors import CorruptError
from draftledger.provenance.atomic import write_json
from draftledger.provenance.digest import file_digest
from draftledger.provenance.manifest import Manifest, describe, manifest_path, write_manifest
from draftledger.provenance.recipe import Recipe, recipe_path, recipe_record
from draftledger.provenance.scratch import scratch_folder

Nature = Literal["repeatable", "draw", "probe"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One job: what it is made of, the payloads it owes, and its nature.

    A *repeatable* stage must give equal content whenever its recipe is equal; a *draw* (training, timing) need not,
    so every draw is kept; a *probe* (the environment) looks at the machine anew each time it runs.
    """

    recipe: Recipe
    outputs: tuple[Path, ...]
    nature: Nature = "repeatable"

    @property
    def draw(self) -> bool:
        """Tell whether the stage is a draw."""
        return self.nature == "draw"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job did: a store hit or a computation, and which draw of its recipe was placed."""

    hit: bool
    draw: int
    manifests: tuple[Manifest, ...] = ()


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

    def whole(self, sha256: str) -> bool:
        """Tell whether the blob is there and still has its digest."""
        path = self.blob(sha256)
        return path.is_file() and file_digest(path) == sha256

    def put(self, source: Path, sha256: str) -> None:
        """Move a finished file into the store; mode 0644, because Snakemake refuses read-only outputs."""
        target = self.blob(sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        source.chmod(0o644)
        with open(source, "rb") as file:
            os.fsync(file.fileno())
        os.replace(source, target)

    def partial(self, key: str) -> Path:
        """Return the folder where an unfinished job keeps its checkpoints."""
        return self.root / "partial" / key

    def draws(self, key: str) -> list[list[Manifest]]:
        """Return the manifests of every draw of an action, oldest first."""
        path = self.action(key)
        try:
            draws = json.loads(path.read_text())["draws"] if path.is_file() else []
            return [[Manifest(**item) for item in draw] for draw in draws]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptError(f"{path}: unreadable ({error}); delete it and run again") from None

    def place(self, sha256: str, target: Path, *, copy: bool) -> None:
        """Put a blob at its path: a hard link, or a copy for draws and across file systems.

        A blob that is linked elsewhere is copied, so that a fresh time stamp never reaches another artefact.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        scratch.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
        try:
            if copy or self.blob(sha256).stat().st_nlink > 1 or not _linked(self.blob(sha256), scratch):
                shutil.copyfile(self.blob(sha256), scratch)
            os.utime(scratch)
            os.replace(scratch, target)
        finally:
            scratch.unlink(missing_ok=True)


def _linked(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            return False
        raise
    return True


def stage(job: Stage, compute: Callable[[Path, Path], None], *, store: Store, refresh: bool = False) -> Outcome:
    """Place the job's payloads from the store, or compute them in a scratch folder, index them and place them.

    `compute(folder, partial)` writes each output in `folder` under its file name; what it leaves in `partial`
    (checkpoints) outlives a kill and is there when the same recipe runs again. With `refresh` it always
    computes. A repeatable stage that differs from its index raises CorruptError; a draw becomes the next draw.
    """
    draws = store.draws(job.recipe.key)
    if draws and not refresh and job.nature != "probe":
        if _restore(job, draws[-1], store):
            return _publish(job, draws[-1], store, Outcome(True, len(draws) - 1))
        if job.draw:
            raise CorruptError(
                f"{job.outputs[0]}: the store's copy and the placed copy are both damaged; a draw cannot be "
                "made again: run with DRAFTLEDGER_STORE=refresh for a new one"
            )
    made = _compute(job, compute, store)
    draws = _index(job, draws, made)
    entry = {"draws": [[asdict(item) for item in draw] for draw in draws], "recipe": asdict(job.recipe)}
    write_json(store.action(job.recipe.key), entry)
    outcome = _publish(job, made, store, Outcome(False, len(draws) - 1))
    shutil.rmtree(store.partial(job.recipe.key), ignore_errors=True)
    return outcome


def _restore(job: Stage, wanted: list[Manifest], store: Store) -> bool:
    for manifest, output in zip(wanted, job.outputs, strict=True):
        if store.whole(manifest.sha256):
            continue
        if not (output.is_file() and file_digest(output) == manifest.sha256):
            return False
        with scratch_folder(store.root / "scratch") as folder:
            shutil.copyfile(output, folder / "copy")
            store.put(folder / "copy", manifest.sha256)
    return True


def _compute(job: Stage, compute: Callable[[Path, Path], None], store: Store) -> list[Manifest]:
    partial = store.partial(job.recipe.key)
    partial.mkdir(parents=True, exist_ok=True)
    with scratch_folder(store.root / "scratch") as folder:
        compute(folder, partial)
        missing = [output.name for output in job.outputs if not (folder / output.name).is_file()]
        if missing:
            raise CorruptError(f"{job.recipe.rule}: did not write {', '.join(missing)}; this is a fault, report it")
        made = [describe(folder / output.name) for output in job.outputs]
        for manifest in made:
            store.put(folder / manifest.name, manifest.sha256)
        return made


def _index(job: Stage, draws: list[list[Manifest]], made: list[Manifest]) -> list[list[Manifest]]:
    if job.draw:
        return [*draws, made]
    differs = bool(draws) and [item.content for item in draws[-1]] != [item.content for item in made]
    if job.nature == "repeatable" and differs:
        raise CorruptError(
            f"{job.outputs[0]}: computed again from the same recipe, the content differs, but this stage must "
            "repeat; check memory and disk, then report it"
        )
    return [made]


def _publish(job: Stage, manifests: list[Manifest], store: Store, outcome: Outcome) -> Outcome:
    for output in job.outputs:
        manifest_path(output).unlink(missing_ok=True)
    for manifest, output in zip(manifests, job.outputs, strict=True):
        store.place(manifest.sha256, output, copy=job.draw)
        write_json(recipe_path(output), recipe_record(job.recipe, draw=outcome.draw))
        write_manifest(output, manifest)
    return Outcome(outcome.hit, outcome.draw, tuple(manifests))
