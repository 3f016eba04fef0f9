"""Compute summary and figures again from the rows that lie beside them, without a workflow or an accelerator."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from draftledger.errors import CorruptError, DraftledgerError
from draftledger.provenance.digest import content_digest
from draftledger.provenance.graph import Artefact, Folder, Graph, read_graph
from draftledger.provenance.job import Job
from draftledger.provenance.manifest import describe, verified
from draftledger.provenance.recipe import Input, Recipe

Outcome = Literal["same bytes", "same content", "differs", "not replayed"]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What computing an artefact again gave; `reason` says why that was not possible."""

    name: str
    outcome: Outcome
    reason: str = ""

    @property
    def number(self) -> bool:
        """Tell whether it holds numbers, whose content must repeat; a picture's bytes follow the drawing library."""
        return self.name.endswith((".parquet", ".tsv"))


def replay(home: Path, *, base: Path = Path()) -> list[Replayed]:
    """Compute the summary and the figures of a results folder again; decision rules are looked up under `base`.

    Nothing in the folder is changed. Raises CorruptError when there is no summary with a recipe.
    """
    graph = read_graph(Folder(home))
    summary = graph.artefacts.get("summary.parquet")
    if summary is None or summary.recipe is None:
        raise CorruptError(f"{home}: no summary with manifest and recipe; run the workflow, or name --root")
    found = []
    for outputs in graph.outputs.values():
        recipe = outputs[0].recipe
        if recipe and (recipe == summary.recipe or recipe.rule == "figures"):
            found += _again(recipe, outputs, graph=graph, home=home, base=base)
    return found


def _again(recipe: Recipe, outputs: Sequence[Artefact], *, graph: Graph, home: Path, base: Path) -> list[Replayed]:
    try:
        inputs = {item.role: _input(item, graph, home=home, base=base) for item in recipe.inputs}
        with tempfile.TemporaryDirectory() as folder:
            _compute(recipe)(Job(recipe.spec, inputs, None, Path(folder), Path(folder)))
            return [Replayed(each.role, _outcome(each, Path(folder))) for each in outputs]
    except DraftledgerError as error:
        reason = str(error)
    except (KeyError, TypeError, ValueError) as error:
        reason = f"its recipe is not one of this version ({error!r}); use the version that wrote it"
    return [Replayed(each.role, "not replayed", reason) for each in outputs]


def _input(item: Input, graph: Graph, *, home: Path, base: Path) -> Path:
    """Return where an input lies, after checking that it is the one that was read."""
    path = (home if item.role in graph.artefacts else base) / item.role
    if item.role in graph.artefacts:
        verified(path)
    if not path.is_file():
        raise CorruptError(f"{path}: is not here; get it, or run the rule that makes it")
    if content_digest(path) != item.content:
        raise CorruptError(f"{path}: is not the one that was read; restore it from version control or the store")
    return path


def _compute(recipe: Recipe) -> Callable[[Job], Any]:
    # The libraries that draw are only loaded when something is drawn.
    if recipe.rule == "figures":
        from draftledger.figures.stage import draw_figures

        return draw_figures
    from draftledger.statistics.stage import write_summary

    return write_summary


def _outcome(artefact: Artefact, folder: Path) -> Outcome:
    made = describe(folder / artefact.manifest.name)
    if made.sha256 == artefact.manifest.sha256:
        return "same bytes"
    return "same content" if made.content == artefact.manifest.content else "differs"
