"""Summary rows: chosen, worded and laid out as tables of text."""

import csv
import math
from collections.abc import Iterable
from io import StringIO
from typing import Any

import pyarrow as pa
from rich.table import Table
from rich.text import Text

Row = dict[str, Any]

BASELINES = ("ar", "mlx_lm_ar")
STAGE_METRICS = ("draft_ms", "verify_ms", "commit_ms")
HEADS = (
    "arm",
    "tokens per round",
    "acceptance rate",
    "ms per round",
    "decode speed-up against ar",
    "against mlx_lm_ar",
    "verdict",
)
ABSENT = "–"
LONGEST = 24  # characters of an arm's name that a narrow terminal keeps on one line


def pick(summary: pa.Table, metric: str, *, scope: str = "all") -> list[Row]:
    """Return the summary's rows of one metric and scope, in the summary's order."""
    return [row for row in summary.to_pylist() if row["metric"] == metric and row["scope"] == scope]


def arms(summary: pa.Table) -> list[str]:
    """Return the baselines, then the other arms by name: the order of every figure and table."""
    named = set(summary["arm"].to_pylist())
    return [arm for arm in BASELINES if arm in named] + sorted(named - set(BASELINES))


def by_arm(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Group rows by arm; order is kept."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["arm"], []).append(row)
    return groups


def number(value: float | None, *, digits: int = 3) -> str:
    """Return `value` to so many significant digits, without an exponent."""
    if value is None or not math.isfinite(value):
        return ABSENT
    rounded = float(f"{value:.{digits - 1}e}")
    places = digits - 1 - (math.floor(math.log10(abs(rounded))) if rounded else 0)
    return f"{value:.{max(0, places)}f}"


def with_interval(row: Row | None) -> str:
    """Return `estimate [low, high]`, or the estimate alone where no interval was made."""
    if row is None:
        return ABSENT
    if row["low"] is None or row["high"] is None:
        return number(row["estimate"])
    return f"{number(row['estimate'])} [{number(row['low'])}, {number(row['high'])}]"


def confidence(rows: Iterable[Row]) -> str:
    """Return what the rows' intervals are, in words: `95 % interval`."""
    levels = sorted({row["confidence"] for row in rows if row["confidence"] is not None})
    return f"{' or '.join(f'{100 * level:g}' for level in levels)} % interval" if levels else "no interval"


def verdict(rows: Iterable[Row]) -> str:
    """Return the verdict on an arm's speed-ups: one where its rows agree, each baseline's otherwise."""
    words = {row["baseline"]: row["verdict"] for row in rows if row["verdict"]}
    if len(set(words.values())) <= 1:
        return next(iter(words.values()), ABSENT)
    return "; ".join(f"{baseline}: {word}" for baseline, word in words.items())


def _overview(summary: pa.Table) -> list[list[str]]:
    rows = [row for row in summary.to_pylist() if row["scope"] == "all" and row["slot"] is None]
    found = {(row["metric"], row["arm"], row["baseline"]): row for row in rows}
    lines = []
    for arm in arms(summary):
        stages = [found[key]["estimate"] for metric in STAGE_METRICS if (key := (metric, arm, None)) in found]
        ratios = [found.get(("speedup_decode", arm, baseline)) for baseline in BASELINES]
        measured = [row for row in ratios if row]
        rates = [found.get((metric, arm, None)) for metric in ("tokens_per_round", "acceptance_rate")]
        line = [*map(with_interval, rates), number(math.fsum(stages) if stages else None)]
        line += [*map(with_interval, ratios), verdict(measured)]
        lines.append([arm, *line])
    return lines


def terminal_table(summary: pa.Table) -> Table:
    """Return one line an arm: rounds, stage costs, both speed-ups with intervals, verdict."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    lines = _overview(summary)
    longest = max((len(arm) for arm, *_ in lines), default=0)
    for head in HEADS:
        justify = "left" if head in ("arm", "verdict") else "right"
        whole = head == "arm" and longest <= LONGEST
        table.add_column(head, justify=justify, overflow="fold", no_wrap=whole)
    for line in lines:
        table.add_row(*map(Text, line))
    return table


def markdown_table(summary: pa.Table) -> str:
    """Return the terminal's table as Markdown, ended by a line feed."""
    lines = [list(HEADS), ["---", *["---:"] * 5, "---"], *_overview(summary)]
    return "".join(f"| {' | '.join(map(_markdown, line))} |\n" for line in lines)


def _markdown(text: str) -> str:
    for special, plain in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("\n", " ")):
        text = text.replace(special, plain)
    return text


def tsv(summary: pa.Table) -> str:
    """Return every row and column; lists are joined by commas, an absent value is an empty field."""
    buffer = StringIO()
    writer = csv.writer(buffer, delimiter="\t", lineterminator="\n")
    writer.writerow(summary.column_names)
    for row in summary.to_pylist():
        writer.writerow([",".join(cell) if isinstance(cell, list) else cell for cell in row.values()])
    return buffer.getvalue()
