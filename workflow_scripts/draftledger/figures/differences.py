"""What differs between two sets of results, as lines of text."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from draftledger.figures.table import with_interval
from draftledger.provenance.diff import Difference
from draftledger.provenance.moves import Move
from draftledger.provenance.numbers import name

SHOWN = 8  # numbers that a group of the same causes shows


def told(differences: Sequence[Difference], moved: Sequence[Move]) -> Iterator[str]:
    """Yield where differences begin, and the numbers that moved, together with those that moved for the same reason."""
    yield f"{len(differences)} artefacts differ, {len(moved)} numbers moved"
    for each in differences:
        if each.own or each.kind not in ("recipe", "content"):
            yield f"  {each.role}: {'; '.join(each.own) or each.kind}{' (same content)' * each.same_content}"
    for causes, group in groupby(sorted(moved, key=lambda move: move.causes), key=lambda move: move.causes):
        numbers = list(group)
        yield ""
        yield f"{len(numbers)} numbers moved because of"
        yield from (f"  {cause}" for cause in causes)
        yield from (f"    {_change(move)}" for move in numbers[:SHOWN])
        if len(numbers) > SHOWN:
            yield f"    and {len(numbers) - SHOWN} that moved less"


def _change(move: Move) -> str:
    if move.before is None or move.after is None:
        return f"{name(move.before or move.after or {})}: {'new' if move.before is None else 'gone'}"
    return f"{name(move.before)} → {with_interval(move.after)}"
