"""The way from a number back to its roots: inputs, recipes, code, and what pins the bytes from outside."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from draftledger.errors import ConfigError
from draftledger.provenance.graph import Artefact, Graph, outside
from draftledger.provenance.numbers import SUMMARY
from draftledger.provenance.recipe import Input, Recipe
from draftledger.provenance.roots import pins

Kind = Literal["number", "job", "file", "upstream", "gap"]


@dataclass(frozen=True, slots=True)
class Node:
    """One step of the way: a number, the job behind files, a file from outside, what pins it, or a gap.

    `files` are content digests by name; `recipe` and `draw` are those of a job or of the summary.
    """

    kind: Kind
    name: str
    files: tuple[tuple[str, str], ...] = ()
    recipe: Recipe | None = None
    draw: int = 0
    inputs: tuple["Node", ...] = ()


def walk(root: Node) -> Iterator[Node]:
    """Yield every node once, the root first, each before what it was made from."""
    seen: set[int] = set()
    todo = [root]
    while todo:
        node = todo.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            todo.extend(reversed(node.inputs))


def gaps(root: Node) -> list[str]:
    """Return what the way back lacks."""
    return [node.name for node in walk(root) if node.kind == "gap"]


def trace_number(graph: Graph, row: Mapping[str, Any], *, seed: int | None = None) -> Node:
    """Return the way back from a summary row; with `seed`, only through that seed's inputs and the shared ones."""
    summary = graph.artefacts.get(SUMMARY)
    if summary is None or summary.recipe is None:
        return Node("number", row["metric"], inputs=(Node("gap", f"{SUMMARY}: no manifest or no recipe is here"),))
    way = _Way(graph)
    decision = [item for item in summary.recipe.inputs if item.content == row["decision"]]
    items = [item for content in row["inputs"] for item in _named(summary.recipe, content)]
    steps = [way.step(summary.recipe, item) for item in (*items, *decision)]
    kept = [node for node in steps if seed is None or _seed(node) in (seed, None)]
    if not decision:
        kept.append(Node("gap", f"decision rules {row['decision']}: no input of the summary has this content"))
    files = ((SUMMARY, summary.manifest.content),)
    return Node("number", row["metric"], files, summary.recipe, summary.draw, _once(kept))


def trace_artefact(graph: Graph, role: str) -> Node:
    """Return the way back from an artefact; raise ConfigError when none has that role."""
    artefact = graph.artefacts.get(role)
    if artefact is None:
        raise ConfigError(f"{role}: no manifest here has this name; name a metric, a row or an artefact's path")
    return _Way(graph).made(artefact)


def _seed(node: Node) -> object:
    return node.recipe.spec.get("seed") if node.recipe else None


def _named(recipe: Recipe, content: str) -> list[Input]:
    found = [item for item in recipe.inputs if item.content == content]
    return found or [Input("", content)]


def _once(nodes: Iterable[Node]) -> tuple[Node, ...]:
    return tuple({id(node): node for node in nodes}.values())


@dataclass(frozen=True, slots=True)
class _Way:
    """The steps found so far, one a job, so that what is reached twice is one node."""

    graph: Graph
    jobs: dict[tuple[str, int], Node] = field(default_factory=dict)
    files: dict[tuple[str, str], Node] = field(default_factory=dict)

    def step(self, consumer: Recipe, item: Input) -> Node:
        """Return the node of one input of a recipe, as far back as it goes."""
        artefact = self.graph.artefacts.get(item.role)
        if artefact and artefact.manifest.content == item.content:
            return self.made(artefact)
        if artefact:
            found = artefact.manifest.content
            return Node("gap", f"{item.role}: {consumer.rule} read {item.content[:12]}, but here is {found[:12]}")
        if item.role and outside(consumer, item.role):
            key = (item.role, item.content)
            return self.files.setdefault(key, Node("file", item.role, (key,)))
        return Node("gap", f"{item.role or 'an input'}: nothing here has the content {item.content[:12]}")

    def made(self, artefact: Artefact) -> Node:
        """Return the node of an artefact and of all that it was made from."""
        recipe = artefact.recipe
        if recipe is None:
            return Node("gap", f"{artefact.role}: no recipe says how it was made")
        key = (recipe.key, artefact.draw)
        if key not in self.jobs:
            # Only a forged recipe can lead back to itself.
            self.jobs[key] = Node("gap", f"{artefact.role}: made from itself")
            files = tuple((each.role, each.manifest.content) for each in self.graph.outputs[key])
            self.jobs[key] = Node("job", recipe.rule, files, recipe, artefact.draw, self._inputs(recipe))
        return self.jobs[key]

    def _inputs(self, recipe: Recipe) -> tuple[Node, ...]:
        upstream = [Node("upstream", line) for line in pins(recipe)]
        nodes = _once([*(self.step(recipe, item) for item in recipe.reads), *upstream])
        return nodes or (Node("gap", f"{recipe.rule}: no input and no pin says where its bytes come from"),)
