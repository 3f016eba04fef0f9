"""Which artefacts and numbers still hold under today's settings, code and environment, and which do not."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from draftledger.jobs import PlannedJob
from draftledger.provenance.diff import recipe_changes
from draftledger.provenance.digest import content_digest
from draftledger.provenance.graph import Artefact, Graph
from draftledger.provenance.numbers import SUMMARY, Number, name
from draftledger.provenance.recipe import ENVIRONMENT, Input, Recipe

State = Literal["ok", "stale", "unexplained", "absent"]


@dataclass(frozen=True, slots=True)
class Judged:
    """An artefact or number, whether it holds today, and why not: its own changes, and what it was made from."""

    name: str
    state: State
    own: tuple[str, ...] = ()
    through: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Audit:
    """The judgement of every artefact and every number."""

    artefacts: tuple[Judged, ...]
    numbers: tuple[Judged, ...]

    def record(self) -> dict[str, Any]:
        """Return everything but the names of what is ok, as plain JSON types."""
        parts = {"artefacts": self.artefacts, "numbers": self.numbers}
        return {
            name: {"counts": counts(judged), "not_ok": [asdict(each) for each in judged if each.state != "ok"]}
            for name, judged in parts.items()
        }


def counts(judged: Iterable[Judged]) -> dict[str, int]:
    """Return how many there are in each state that occurs."""
    found: dict[str, int] = {}
    for each in judged:
        found[each.state] = found.get(each.state, 0) + 1
    return found


def audit(jobs: Iterable[PlannedJob], graph: Graph, numbers: Sequence[Number], *, root: str) -> Audit:
    """Compare each artefact's recipe with today's, following what it was made from, and then each number.

    Inputs outside the results are looked up where the jobs name them.
    """
    judged: dict[str, Judged] = {}
    for job in jobs:
        for path in job.outputs:
            role = path.removeprefix(f"{root}/")
            judged[role] = _judge(role, job, graph=graph, judged=judged, root=root)
    rows = tuple(_number(row, graph.artefacts.get(SUMMARY), judged) for row in numbers)
    return Audit(tuple(judged.values()), rows)


def _judge(role: str, job: PlannedJob, *, graph: Graph, judged: Mapping[str, Judged], root: str) -> Judged:
    artefact = graph.artefacts.get(role)
    if artefact is None:
        return Judged(role, "absent", ("no manifest is here",))
    if artefact.recipe is None:
        return Judged(role, "unexplained", ("no recipe says how it was made",))
    roles = {path.removeprefix(f"{root}/"): path for path in job.inputs}
    today = Recipe(job.rule, job.spec, job.code, None, tuple(Input(each, "") for each in roles if each != ENVIRONMENT))
    own = [*recipe_changes(artefact.recipe, today), *_other_contents(artefact.recipe, roles, graph)]
    through = [each for each in roles if _fails(judged.get(each))]
    if own or through:
        return Judged(role, "stale", tuple(own), tuple(through))
    return Judged(role, "ok" if artefact.here else "absent")


def _fails(judged: Judged | None) -> bool:
    return judged is not None and judged.state in ("stale", "unexplained")


def _other_contents(recipe: Recipe, roles: Mapping[str, str], graph: Graph) -> Iterable[str]:
    for item in recipe.reads:
        if item.role in roles and item.content != _content(item.role, roles[item.role], graph):
            yield f"{item.role} is another, or gone"


def _content(role: str, path: str, graph: Graph) -> str | None:
    artefact = graph.artefacts.get(role)
    if artefact:
        return artefact.manifest.content
    return content_digest(Path(path)) if Path(path).is_file() else None


def _number(row: Number, summary: Artefact | None, judged: Mapping[str, Judged]) -> Judged:
    if summary is None or summary.recipe is None:
        return Judged(name(row), "unexplained", (f"{SUMMARY} has no recipe",))
    roles = {item.content: item.role for item in summary.recipe.inputs}
    unknown = [f"the summary read no {content[:12]}" for content in row["inputs"] if content not in roles]
    if unknown:
        return Judged(name(row), "unexplained", tuple(unknown))
    own = judged[SUMMARY].own if SUMMARY in judged else ()
    behind = [roles[content] for content in row["inputs"]]
    through = tuple(role for role in behind if _fails(judged.get(role)))
    return Judged(name(row), "stale" if own or through else "ok", own, through)
