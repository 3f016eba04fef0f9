"""The one function behind every job: place the payloads from the store, or compute, index and place them."""

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from draftledger.errors import CorruptError
from draftledger.provenance.atomic import sweep, write_json
from draftledger.provenance.manifest import Manifest, describe, manifest_path, write_manifest
from draftledger.provenance.natures import Nature
from draftledger.provenance.recipe import Recipe, recipe_path, recipe_record
from draftledger.provenance.scratch import scratch_folder
from draftledger.provenance.store import Store

Compute = Callable[[Path, Path], None]
Draws = list[list[Manifest]]


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


def stage(job: Stage, compute: Compute, *, store: Store, refresh: bool = False) -> Outcome:
    """Place the job's payloads from the store, or compute them in a scratch folder, index them and place them.

    `compute(folder, partial)` writes each output in `folder` under its file name; what it leaves in `partial`
    (checkpoints) outlives a kill and is there when the same draw of the recipe runs again. With `refresh` it always
    computes. A repeatable stage that differs from its index raises CorruptError; a draw becomes the next draw.
    Of two processes with one recipe the second waits for the first, and finds its payloads in the store.
    """
    with scratch_folder(store.root / "scratch", job.recipe.key) as folder:
        sweep(store.action(job.recipe.key))
        draws = store.draws(job.recipe.key)
        hit = (
            bool(draws) and not refresh and job.nature != "probe" and _whole(job, draws[-1], store=store, folder=folder)
        )
        indexed = draws if hit else _make(job, draws, compute, store=store, folder=folder)
        outcome = Outcome(hit, len(indexed) - 1, tuple(indexed[-1]))
        _publish(job, outcome, store)
        # Checkpoints of what is in the index are of no more use; those of a broken refresh are.
        for draw in range(len(draws) + (not hit)):
            shutil.rmtree(store.partial(job.recipe.key, draw), ignore_errors=True)
        return outcome


def _whole(job: Stage, wanted: list[Manifest], *, store: Store, folder: Path) -> bool:
    pairs = zip(wanted, job.outputs, strict=True)
    whole = all(store.mend(item.sha256, twice=job.draw, also=output, folder=folder) for item, output in pairs)
    if job.draw and not whole:
        raise CorruptError(
            f"{job.outputs[0]}: the store's two copies are both damaged; a draw cannot be made again: "
            "run with DRAFTLEDGER_STORE=refresh for a new one"
        )
    return whole


def _make(job: Stage, draws: Draws, compute: Compute, *, store: Store, folder: Path) -> Draws:
    partial = store.partial(job.recipe.key, len(draws))
    partial.mkdir(parents=True, exist_ok=True)
    compute(folder, partial)
    missing = [output.name for output in job.outputs if not (folder / output.name).is_file()]
    if missing:
        raise CorruptError(f"{job.recipe.rule}: did not write {', '.join(missing)}; this is a fault, report it")
    made = [describe(folder / output.name) for output in job.outputs]
    if job.nature == "repeatable" and draws and [item.content for item in draws[-1]] != [item.content for item in made]:
        raise CorruptError(
            f"{job.outputs[0]}: computed again from the same recipe, the content differs, but this stage must "
            "repeat; check memory and disk, then report it"
        )
    for manifest in made:
        store.put(folder / manifest.name, manifest.sha256, twice=job.draw)
    draws = [*draws, made] if job.draw else [made]
    entry = {"draws": [[asdict(item) for item in draw] for draw in draws], "recipe": asdict(job.recipe)}
    write_json(store.action(job.recipe.key), entry)
    return draws


def _publish(job: Stage, outcome: Outcome, store: Store) -> None:
    """Place every payload and recipe, then every manifest: what has one is whole."""
    for output in job.outputs:
        manifest_path(output).unlink(missing_ok=True)
        sweep(output)
    placed = list(zip(outcome.manifests, job.outputs, strict=True))
    for manifest, output in placed:
        store.place(manifest.sha256, output, twice=job.draw)
        write_json(recipe_path(output), recipe_record(job.recipe, draw=outcome.draw))
    for manifest, output in placed:
        write_manifest(output, manifest)
