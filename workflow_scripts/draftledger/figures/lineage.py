"""The picture of a number's way back to its roots: a box a job, what it was made from to its right."""

from html import escape

from draftledger.figures.layers import Slot, layout
from draftledger.figures.tree import SHORT, details, headline
from draftledger.provenance.natures import nature_of
from draftledger.provenance.trace import Node

BOX, TALL, ACROSS, EDGE, HEAD, FOOT = 240, 52, 290, 20, 58, 36
STEP, THIN = 66, 16  # pixels of a box's line, and of a line that only passes
FITS = 34  # letters that a box is wide
STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #20242a; }
.title { font-size: 15px; font-weight: 600; } .mark { fill: #69727d; font-size: 11px; }
.pin { fill: #007a58; font-size: 11px; } .paper { fill: #fefefe; }
.box { fill: #f1f3f5; stroke: #c4cad1; } .edge { fill: none; stroke: #a9b1ba; stroke-width: 1.2; }
.job { fill: #0072b2; } .draw { fill: #d55e00; } .file { fill: #56b4e9; } .gap { fill: #c0143c; }
.number { fill: #20242a; }
@media (prefers-color-scheme: dark) {
text, .number { fill: #e4e7eb; } .mark { fill: #9aa3ad; } .pin { fill: #3fc79a; } .paper { fill: #16191d; }
.box { fill: #232930; stroke: #454d57; } .edge { stroke: #5b646e; } }
"""
LEGEND = (("job", "job that repeats"), ("draw", "draw, kept"), ("file", "file outside the results"), ("gap", "gap"))
NOTE = "Lines that a longer way implies are left out; green names what pins the bytes."


def draw(root: Node, *, title: str) -> str:
    """Return the SVG of a number's way back; equal ways give equal bytes."""
    columns, links = layout(root)
    tops = {slot: HEAD + y for column in columns for slot, y in _down(column)}
    wide = ACROSS * (len(columns) - 1) + BOX + 2 * EDGE
    tall = max(tops.values()) + TALL + FOOT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" width="{wide}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{wide}" height="{tall}"/>',
        f'<text class="title" x="{EDGE}" y="32">{escape(title)}</text>',
        *(_edge(start, end, tops) for start, end in links),
        *(_box(slot, tops[slot]) for column in columns for slot in column if not slot.passing),
        *_legend(tall - 20),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _down(column: list[Slot]) -> list[tuple[Slot, int]]:
    tops, y = [], 0
    for slot in column:
        tops.append((slot, y))
        y += THIN if slot.passing else STEP
    return tops


def _edge(start: Slot, end: Slot, tops: dict[Slot, int]) -> str:
    x, to = EDGE + ACROSS * start.column + BOX, EDGE + ACROSS * end.column
    y, down = (tops[slot] + (THIN if slot.passing else TALL) // 2 for slot in (start, end))
    middle = (x + to) // 2
    across = f" H{to + BOX}" if end.passing else ""
    return f'<path class="edge" d="M{x} {y} C{middle} {y} {middle} {down} {to} {down}{across}"/>'


def _box(slot: Slot, y: int) -> str:
    node, x = slot.node, EDGE + ACROSS * slot.column
    drawn = node.recipe is not None and node.kind == "job" and nature_of(node.recipe.rule) == "draw"
    pinned = "; ".join(child.name for child in node.inputs if child.kind == "upstream")
    texts = (("", headline(node)), ("mark", _digests(node)), ("pin", pinned))
    whole = "\n".join([headline(node), *details(node), pinned]).strip()
    parts = [
        f"<g><title>{escape(whole)}</title>",
        f'<rect class="box" x="{x}" y="{y}" width="{BOX}" height="{TALL}" rx="4"/>',
        f'<rect class="{"draw" if drawn else node.kind}" x="{x}" y="{y}" width="5" height="{TALL}" rx="2"/>',
        *(
            f'<text class="{kind}" x="{x + 13}" y="{y + 17 + 14 * line}">{escape(_cut(text))}</text>'
            for line, (kind, text) in enumerate(texts)
        ),
        "</g>",
    ]
    return "".join(parts)


def _digests(node: Node) -> str:
    contents = " ".join(content[:SHORT] for _, content in node.files[-1:])
    return f"{contents}, code {node.recipe.code[:SHORT]}" if node.recipe else contents


def _cut(text: str) -> str:
    return text if len(text) <= FITS else f"{text[: FITS - 1]}…"


def _legend(y: int) -> list[str]:
    marks = [
        f'<rect class="{kind}" x="{EDGE + 160 * place}" y="{y}" width="10" height="10" rx="2"/>'
        f'<text class="mark" x="{EDGE + 160 * place + 16}" y="{y + 9}">{words}</text>'
        for place, (kind, words) in enumerate(LEGEND)
    ]
    return [*marks, f'<text class="mark" x="{EDGE + 160 * len(LEGEND)}" y="{y + 9}">{NOTE}</text>']
