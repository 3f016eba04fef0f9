"""A graph in columns: each node beyond all that was made from it, long lines with a place of their own."""

from collections import defaultdict
from dataclasses import dataclass

from draftledger.provenance.trace import Node, walk


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """A place in a column: a node's, or that of a line which only passes on its way to the node."""

    node: Node
    column: int
    passing: bool


Columns = list[list[Slot]]
Links = list[tuple[Slot, Slot]]


def layout(root: Node) -> tuple[Columns, Links]:
    """Return the columns, each in order from the top, and the links from one column to the next.

    Links that a longer way implies are left out, and so are upstream nodes, which belong into their job's box.
    """
    depth = _depths(root)
    slots: dict[tuple[int, int], Slot] = {}
    links: dict[tuple[int, int, int], tuple[Slot, Slot]] = {}
    for node in _drawn(root):
        slots[id(node), depth[id(node)]] = Slot(node, depth[id(node)], passing=False)
    for node in _drawn(root):
        for child in _direct(node):
            before = slots[id(node), depth[id(node)]]
            for column in range(depth[id(node)] + 1, depth[id(child)] + 1):
                after = slots.setdefault((id(child), column), Slot(child, column, passing=True))
                links[id(before), id(after), column] = (before, after)
                before = after
    return _ordered(list(slots.values()), list(links.values())), list(links.values())


def _ordered(slots: list[Slot], links: Links) -> Columns:
    """Put each slot beside those that link to it."""
    users: dict[int, list[Slot]] = defaultdict(list)
    for start, end in links:
        users[id(end)].append(start)
    columns: Columns = [[] for _ in range(1 + max(slot.column for slot in slots))]
    for slot in slots:
        columns[slot.column].append(slot)
    line: dict[int, float] = {}
    for column in columns:
        column.sort(key=lambda slot: _mean([line[id(user)] for user in users[id(slot)]]))
        line.update({id(slot): place for place, slot in enumerate(column)})
    return columns


def _mean(lines: list[float]) -> float:
    return sum(lines) / len(lines) if lines else 0.0


def _drawn(root: Node) -> list[Node]:
    return [node for node in walk(root) if node.kind != "upstream"]


def _made_from(node: Node) -> list[Node]:
    return [child for child in node.inputs if child.kind != "upstream"]


def _direct(node: Node) -> list[Node]:
    """Return the inputs that no other input was made from."""
    beyond = {id(far) for child in _made_from(node) for far in walk(child) if far is not child}
    return [child for child in _made_from(node) if id(child) not in beyond]


def _depths(root: Node) -> dict[int, int]:
    depth = {id(root): 0}
    todo = [root]
    while todo:
        node = todo.pop()
        for child in _made_from(node):
            if depth.get(id(child), -1) <= depth[id(node)]:
                depth[id(child)] = depth[id(node)] + 1
                todo.append(child)
    return depth
