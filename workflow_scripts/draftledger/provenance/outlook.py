"""Which jobs are to be done, and whose results the store has already: from stats and small reads alone."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from draftledger.errors import CorruptError
from draftledger.jobs import PlannedJob
from draftledger.provenance.digest import content_digest
from draftledger.provenance.glance import Glance, Seen, glance
from draftledger.provenance.natures import nature_of
from draftledger.provenance.recipe import ENVIRONMENT, Input, Recipe, recipe_path
from draftledger.provenance.store import Store

SMALL = 1_000_000  # bytes; a larger file outside the results is not read at parse time


@dataclass(frozen=True, slots=True)
class Outlook:
    """How many jobs are planned, how many of them are store hits, and of how many that cannot be known yet."""

    planned: int
    stored: int
    unknown: int

    def line(self) -> str:
        """Return the part of the dry-run's line, empty when nothing is planned."""
        if not self.planned:
            return ""
        told = f"; {self.stored} of {self.planned} planned jobs are in the store"
        return f"{told}, {self.unknown} unknown until their inputs are made" if self.unknown else told


def status(jobs: Sequence[PlannedJob], *, root: str, store: Path) -> str:
    """Return the one line of a dry-run; `root` is the results folder. Nothing is written."""
    seen = glance([path for job in jobs for path in job.outputs])
    return seen.line() + outlook(jobs, seen, root=root, store=Store(store)).line()


def outlook(jobs: Iterable[PlannedJob], seen: Glance, *, root: str, store: Store) -> Outlook:
    """Follow the jobs in order: a job is planned when an output is absent or changed or its recipe is another.

    Its followers are planned with it, as Snakemake plans them: what they read is what the store will place. Where
    it has nothing to place that is unknown, and they count as unknown rather than guessed at.
    """
    contents = {path: look.content for path, look in seen.seen.items()}
    remade: set[str] = set()
    planned = stored = unknown = 0
    for job in jobs:
        recipe = _recipe(job, contents, root=root)
        if recipe is not None and remade.isdisjoint(job.inputs) and _settled(job, recipe.key, seen):
            continue
        remade.update(job.outputs)
        planned += 1
        unknown += recipe is None
        placed = None if recipe is None or nature_of(job.rule) == "probe" else _placed(store, recipe.key)
        stored += placed is not None
        contents.update({path: placed.get(Path(path).name) if placed else None for path in job.outputs})
    return Outlook(planned, stored, unknown)


def _recipe(job: PlannedJob, contents: dict[str, str | None], *, root: str) -> Recipe | None:
    """Return the recipe that the job would write, or null when the content of an input is not known."""
    environment, inputs = None, []
    for path in job.inputs:
        content = contents[path] if path in contents else _outside(path, job, contents)
        if content is None:
            return None
        role = path.removeprefix(f"{root}/")
        if role == ENVIRONMENT:
            environment = content
        else:
            inputs.append(Input(role, content))
    return Recipe(job.rule, job.spec, job.code, environment, tuple(sorted(inputs, key=lambda item: item.role)))


def _outside(path: str, job: PlannedJob, contents: dict[str, str | None]) -> str | None:
    """Digest a small file; of a large one believe the job's last recipe unless the file is newer."""
    try:
        found = Path(path).stat()
        if found.st_size <= SMALL:
            contents[path] = content_digest(Path(path))
            return contents[path]
        recipe = recipe_path(Path(job.outputs[0]))
        if found.st_mtime_ns > recipe.stat().st_mtime_ns:
            return None
        return {item["role"]: item["content"] for item in json.loads(recipe.read_bytes())["inputs"]}.get(path)
    except (OSError, CorruptError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _settled(job: PlannedJob, key: str, seen: Glance) -> bool:
    return all(seen.seen.get(path, Seen("absent")).state == "ok" and _key(path) == key for path in job.outputs)


def _key(payload: str) -> str | None:
    try:
        return json.loads(recipe_path(Path(payload)).read_bytes())["key"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _placed(store: Store, key: str) -> dict[str, str] | None:
    """Return the contents, by file name, that a store hit would place; null when it has none or blobs are gone."""
    try:
        draws = store.draws(key)
    except CorruptError:
        return None
    if not draws or not all(store.blob(item.sha256).is_file() for item in draws[-1]):
        return None
    return {item.name: item.content for item in draws[-1]}
