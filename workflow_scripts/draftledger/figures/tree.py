"""The way from a number to its roots as a tree of text, and as plain JSON types."""

from itertools import takewhile
from typing import Any

from rich.text import Text
from rich.tree import Tree

from draftledger.provenance.natures import nature_of
from draftledger.provenance.trace import Node, walk

SHORT = 12  # hex digits of a digest that are shown
STYLES = {"number": "bold", "job": "none", "file": "cyan", "upstream": "green", "gap": "bold red"}


def terminal_tree(root: Node, *, title: str) -> Tree:
    """Return the tree with each job's inputs below it; those that stand above already are named in one line."""
    tree = Tree(_label(root, title), highlight=False)
    _grow(tree, root, set())
    return tree


def _grow(tree: Tree, node: Node, seen: set[int]) -> None:
    again = []
    for child in node.inputs:
        if id(child) in seen:
            again.append(headline(child))
        else:
            seen.add(id(child))
            _grow(tree.add(_label(child, headline(child))), child, seen)
    if again:
        tree.add(Text(f"as above: {', '.join(again)}", style="dim"))


def _label(node: Node, line: str) -> Text:
    return Text("\n", style="dim").join([Text(line, style=STYLES[node.kind]), *(Text(d, "dim") for d in details(node))])


def headline(node: Node) -> str:
    """Return what a node is, in a line: a job by its files."""
    match node.kind:
        case "job":
            first, last = min(node.files)[0], max(node.files)[0]
            alike = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
            return first if first == last else "".join(letter for letter, _ in alike) + "*"
        case "gap":
            return f"GAP: {node.name}"
    return node.name


def details(node: Node) -> list[str]:
    """Return a node's digests: contents, code, environment class, and which draw it is."""
    if node.recipe is None:
        return [f"content {content[:SHORT]}" for _, content in node.files]
    contents = ", ".join(f"{name.rsplit('/', 1)[-1]} {content[:SHORT]}" for name, content in node.files)
    facts = [f"code {node.recipe.code[:SHORT]}"]
    if node.recipe.environment:
        facts.append(f"environment {node.recipe.environment[:SHORT]}")
    if nature_of(node.recipe.rule) == "draw":
        facts.append(f"draw {node.draw} of recipe {node.recipe.key[:SHORT]}")
    return [contents, ", ".join(facts)]


def record(root: Node, row: dict[str, Any] | None) -> dict[str, Any]:
    """Return the number's row and every node once, with inputs as places in the list of nodes."""
    nodes = list(walk(root))
    places = {id(node): number for number, node in enumerate(nodes)}
    return {"schema": 1, "number": row, "nodes": [_plain(node, places) for node in nodes]}


def _plain(node: Node, places: dict[int, int]) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": node.kind, "name": node.name, "files": dict(node.files)}
    found["inputs"] = [places[id(child)] for child in node.inputs]
    if node.recipe:
        recipe = node.recipe
        found |= {"key": recipe.key, "draw": node.draw, "code": recipe.code, "environment": recipe.environment}
        found["settings"] = recipe.spec
    return found
