"""One self-contained HTML page: what was found, the figures, every number, and how to check them."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from draftledger.errors import CorruptError
from draftledger.figures import categories, cost, cycle, learning, speedup, style, survival
from draftledger.figures.table import Row, by_arm, confidence, number, pick, verdict

TEMPLATE = Path(__file__).with_name("page.html")
FIGURES = {
    "speedup": speedup,
    "survival": survival,
    "cycle": cycle,
    "categories": categories,
    "cost": cost,
    "learning": learning,
}
WORDS = ("metric", "arm", "baseline", "scope", "slot", "estimate", "low", "high", "confidence", "unit")
COUNTS = ("n_seeds", "n_launches", "n_prompts", "n_sessions", "n_rounds")
COLUMNS = (*WORDS, "population", *COUNTS, "floor", "mde", "verdict", "inputs")
FILTERS = ("metric", "arm", "scope")


@dataclass(frozen=True, slots=True)
class Finding:
    """What the summary says of one arm."""

    arm: str
    verdict: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One table cell: its text, the whole value where the text is cut, and its CSS class."""

    text: str
    full: str | None = None
    kind: str = ""


def render(
    *,
    title: str,
    summary: pa.Table,
    figures: Mapping[str, str],
    environment: Mapping[str, Any],
    provenance: Sequence[Mapping[str, str]],
) -> str:
    """Return the page; equal arguments give equal bytes, and nothing on it is fetched.

    figures: name → SVG text from our own `style.svg`, the only markup that is not escaped. provenance: one
    mapping an artefact with `artefact`, `rule`, `content_digest`.
    Raises CorruptError for a figure that is no SVG or carries a script.
    """
    claims = [row for row in pick(summary, "speedup_decode") if row["verdict"]]
    findings = [_finding(arm, group) for arm, group in by_arm(claims).items()]
    rows = summary.to_pylist()
    engine = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    engine.filters["unbroken"] = lambda text: text.replace(" %", "\N{NO-BREAK SPACE}%")
    return engine.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        title=title,
        lead=_lead(findings),
        findings=findings,
        figures=[_figure(name, figures[name]) for name in sorted(figures, key=_place)],
        columns=("#", *COLUMNS),
        rows=[[Cell(str(place), kind="number"), *_cells(row)] for place, row in enumerate(rows)],
        filters=[(name, COLUMNS.index(name) + 1, _options(rows, name)) for name in FILTERS],
        decisions=_options(rows, "decision"),
        environment=_flat(environment),
        provenance=provenance,
    )


def _lead(findings: Sequence[Finding]) -> str:
    if not findings:
        return "No arm has a verdict on its speed: nothing was timed."
    counts = Counter(re.sub(r" \(.*?\)", "", finding.verdict) for finding in findings)
    words = ", ".join(f"{count} {word}" for word, count in counts.items())
    noun = "arm" if len(findings) == 1 else "arms"
    return f"{len(findings)} {noun} timed against autoregressive decoding: {words}."


def _finding(arm: str, rows: Sequence[Row]) -> Finding:
    ratios = " and ".join(f"{_ratio(row)} the speed of {row['baseline']}" for row in rows)
    populations = " or ".join(dict.fromkeys(row["population"] for row in rows))
    return Finding(arm, verdict(rows), f"Decodes at {ratios} ({confidence(rows)}; population: {populations}).")


def _ratio(row: Row) -> str:
    if row["low"] is None or row["high"] is None:
        return f"{number(row['estimate'])} times"
    return f"{number(row['estimate'])} times ({number(row['low'])} to {number(row['high'])})"


def _place(name: str) -> tuple[int, str]:
    known = list(FIGURES)
    return (known.index(name) if name in known else len(known), name)


def _figure(name: str, svg: str) -> dict[str, Any]:
    caption = FIGURES[name].CAPTION if name in FIGURES else name
    return {"name": f"figure-{name}", "svg": Markup(_inline(svg, name)), "caption": caption}


def _inline(svg: str, name: str) -> str:
    """Cut an SVG file down to its element, with ids of its own and the page's neutral colours."""
    if "<svg" not in svg or "<script" in svg.lower():
        raise CorruptError(f"figure {name}: not a picture of ours; draw it again")
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    for colour, variable in style.THEME.items():
        svg = svg.replace(colour, variable)
    return svg.replace("<svg", '<svg role="img"', 1)


def _cells(row: Row) -> list[Cell]:
    return [_cell(row[column]) for column in COLUMNS]


def _cell(value: Any) -> Cell:
    if value is None:
        return Cell("")
    if isinstance(value, float):
        return Cell(number(value, digits=4), repr(value), "number")
    if isinstance(value, int):
        return Cell(str(value), kind="number")
    if isinstance(value, list):
        return Cell(" ".join(digest[:8] for digest in value), " ".join(value), "digest")
    return Cell(value)


def _options(rows: Sequence[Row], column: str) -> list[str]:
    return list(dict.fromkeys(row[column] for row in rows if row[column] is not None))


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            pairs += _flat(value, f"{prefix}{name}.")
        else:
            pairs.append((f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value)))
    return pairs
