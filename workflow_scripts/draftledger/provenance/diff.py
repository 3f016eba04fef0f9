"""Which artefacts of two sets of results differ: in what their recipes say, in their inputs, or in content alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from draftledger.provenance.graph import Artefact, Graph
from draftledger.provenance.natures import Nature, nature_of
from draftledger.provenance.recipe import ENVIRONMENT, Recipe

AGAIN: dict[Nature, str] = {
    "draw": "another draw of the same recipe",
    "probe": "another answer of the same probe",
    "repeatable": "the same recipe gave other content, and should not",
}

Kind = Literal["only in the first", "only in the second", "recipe", "content"]


@dataclass(frozen=True, slots=True)
class Difference:
    """How one artefact differs: `own` is what its recipe itself changed, `through` the inputs that brought it in.

    `drawn` tells that its rule is a draw, so that another recipe means other content, whatever changed.
    """

    role: str
    kind: Kind
    own: tuple[str, ...] = ()
    through: tuple[str, ...] = ()
    same_content: bool = False
    drawn: bool = False


def compare(first: Graph, second: Graph) -> list[Difference]:
    """Return every artefact that differs, sorted by role; equal artefacts are left out."""
    found = []
    for role in sorted({*first.artefacts, *second.artefacts}):
        one, other = first.artefacts.get(role), second.artefacts.get(role)
        if one is None or other is None:
            found.append(Difference(role, "only in the second" if one is None else "only in the first"))
        elif difference := _difference(one, other):
            found.append(difference)
    return found


def _difference(one: Artefact, other: Artefact) -> Difference | None:
    same = one.manifest.content == other.manifest.content
    if one.recipe is None or other.recipe is None:
        return None if same and one.recipe == other.recipe else Difference(one.role, "content", ("no recipe",))
    nature = nature_of(one.recipe.rule)
    if one.recipe.key != other.recipe.key:
        own = tuple(recipe_changes(one.recipe, other.recipe))
        return Difference(one.role, "recipe", own, tuple(_inputs(one.recipe, other.recipe)), same, nature == "draw")
    if same:
        return None
    return Difference(one.role, "content", (AGAIN[nature],))


def recipe_changes(one: Recipe, other: Recipe) -> Iterator[str]:
    """Yield how two recipes differ, inputs that both have left out, one line each."""
    if one.rule != other.rule:
        yield f"rule {one.rule} → {other.rule}"
    yield from _settings(one.spec, other.spec, "")
    if one.code != other.code:
        yield f"code {one.code[:12]} → {other.code[:12]}"
    before, after = ({item.role for item in recipe.inputs} for recipe in (one, other))
    for roles, words in ((before - after, "no more reads"), (after - before, "now reads")):
        if roles:
            yield f"{words} {', '.join(sorted(roles))}"


def _settings(one: Any, other: Any, path: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            yield from _settings(one.get(key), other.get(key), f"{path}.{key}" if path else key)
    elif one != other:
        yield f"{path}: {_short(one)} → {_short(other)}"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _inputs(one: Recipe, other: Recipe) -> Iterator[str]:
    before = {item.role: item.content for item in one.inputs}
    yield from (item.role for item in other.inputs if before.get(item.role, item.content) != item.content)
    if one.environment != other.environment:
        yield ENVIRONMENT
