"""The picture of the workflow: a box a rule, its inputs as arcs, how far it repeats, what it writes."""

import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

from draftledger.errors import ConfigError

Rules = Sequence[tuple[str, Sequence[str]]]

WORKFLOW: Rules = (
    ("environment", ()),
    ("corpus", ()),
    ("model", ()),
    ("continuations", ("environment", "corpus", "model")),
    ("windows", ("corpus", "model", "continuations")),
    ("teacher", ("environment", "model", "windows")),
    ("adapter", ("environment", "model", "windows", "teacher")),
    ("published", ()),
    ("decode", ("environment", "model", "adapter", "published")),
    ("timing", ("environment", "model", "adapter", "published", "decode")),
    ("summary", ("decode", "timing")),
    ("figures", ("adapter", "timing", "summary")),
    ("report", ("summary", "figures")),
    ("ledger", ("summary", "figures", "report")),
    ("release", ("ledger",)),
)
NOTES = (
    "The tiny target is trained here, on corpus and in environment; every other target is pinned bytes.",
    "report, ledger and release also read every artefact above them. Arms other than ar also read the answers of ar.",
)
ALWAYS, CLASS, DRAW = "repeatable", "repeatable within a class", "a draw: kept, not repeated"
MEASURED, MACHINE = "a measurement", "one per machine"
COLOURS = {ALWAYS: "#009e73", CLASS: "#56b4e9", DRAW: "#d55e00", MEASURED: "#cc79a7", MACHINE: "#8a929c"}
ABOUT = {
    "environment": (MACHINE, "environment.json"),
    "corpus": (ALWAYS, "corpus/documents.parquet"),
    "model": (ALWAYS, "model/"),
    "continuations": (CLASS, "continuations/answers-*.parquet"),
    "windows": (ALWAYS, "windows/{split}.parquet"),
    "teacher": (CLASS, "teacher/{split}-*.safetensors"),
    "adapter": (DRAW, "adapters/…/adapter.safetensors"),
    "published": (ALWAYS, "adapters/…/published/"),
    "decode": (CLASS, "decode/{arm}/…/rounds.parquet"),
    "timing": (MEASURED, "timing/…/session{n}.parquet"),
    "summary": (ALWAYS, "summary.parquet"),
    "figures": (ALWAYS, "figures/*.svg"),
    "report": (ALWAYS, "report.html"),
    "ledger": (ALWAYS, "SHA256SUMS"),
    "release": (ALWAYS, "release/{version}-….tar"),
}
LEFT, TOP, STEP, BOX, TALL, WIDE, LINE = 150, 22, 42, 132, 28, 800, 18
STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #20242a; }
.name { font-weight: 600; } .mark { fill: #69727d; font-size: 12px; }
.file { font: 12px ui-monospace, Menlo, Consolas, monospace; }
.paper { fill: #fefefe; } .box { fill: #f1f3f5; stroke: #c4cad1; }
.edge { fill: none; stroke-width: 1.3; } .head { fill: #8a929c; }
@media (prefers-color-scheme: dark) {
text { fill: #e4e7eb; } .mark { fill: #9aa3ad; } .paper { fill: #16191d; }
.box { fill: #232930; stroke: #454d57; } }
"""


def draw(rules: Rules, notes: Sequence[str] = ()) -> str:
    """Return the SVG of rules, notes below; ConfigError unless the inputs of a rule come before it."""
    places = {rule: place for place, (rule, _) in enumerate(rules)}
    edges = [(source, rule) for rule, inputs in rules for source in inputs]
    for source, rule in edges:
        if places.get(source, len(rules)) >= places[rule]:
            raise ConfigError(f"rule {rule}: input {source} is not an earlier rule; list rules in running order")
    below = 2 * TOP + STEP * len(rules) - (STEP - TALL)
    height = below + LINE * len(notes)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {height}" width="{WIDE}" role="img">',
        "<title>The rules of the workflow and their inputs</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path class="head" d="M0 0.5 8 4 0 7.5z"/></marker></defs>',
        f'<rect class="paper" width="{WIDE}" height="{height}"/>',
        *(_edge(places[source], places[rule], colour=_colour(source)) for source, rule in edges),
        *(_box(place, rule) for rule, place in places.items()),
        *(f'<text class="mark" x="{TOP}" y="{below + LINE * i}">{escape(note)}</text>' for i, note in enumerate(notes)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _colour(rule: str) -> str:
    return COLOURS.get(ABOUT.get(rule, ("", ""))[0], COLOURS[MACHINE])


def _edge(source: int, target: int, *, colour: str) -> str:
    start, end = TOP + STEP * source, TOP + STEP * target
    if target == source + 1:
        x = LEFT + 24
        path = f"M{x} {start + TALL} V{end - 1}"
    else:
        reach = LEFT - 18 - 17 * (target - source)
        path = f"M{LEFT} {start + 19} C{reach} {start + 19} {reach} {end + 9} {LEFT - 1} {end + 9}"
    return f'<path class="edge" stroke="{colour}" marker-end="url(#head)" d="{path}"/>'


def _box(place: int, rule: str) -> str:
    mark, file = ABOUT.get(rule, ("", ""))
    y = TOP + STEP * place
    parts = [
        f'<rect class="box" x="{LEFT}" y="{y}" width="{BOX}" height="{TALL}" rx="4"/>',
        f'<rect x="{LEFT}" y="{y}" width="6" height="{TALL}" rx="3" fill="{_colour(rule)}"/>',
        f'<text class="name" x="{LEFT + 16}" y="{y + 19}">{escape(rule)}</text>',
        f'<text class="file" x="{LEFT + BOX + 18}" y="{y + 18}">{escape(file and f"results/{file}")}</text>',
        f'<text class="mark" x="{LEFT + BOX + 334}" y="{y + 18}">{escape(mark)}</text>',
    ]
    return "".join(parts)


def main(arguments: Sequence[str]) -> None:
    """Write the workflow's picture to the path given."""
    if len(arguments) != 1:
        raise ConfigError("usage: python -m draftledger.figures.dag PATH")
    Path(arguments[0]).write_text(draw(WORKFLOW, NOTES), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
