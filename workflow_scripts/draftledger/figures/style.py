"""One look for every figure, and SVG bytes that depend on the data alone."""

from collections.abc import Callable, Sequence
from functools import wraps
from io import StringIO
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import blended_transform_factory

P = ParamSpec("P")

WIDTH = 6.2  # inches: one column
INK, MUTED, GRID, BAND, PAPER = "#20242a", "#69727d", "#d8dce1", "#e8ebef", "#fefefe"
# What a page puts in place of the neutral colours, so that figures follow its light or dark look.
THEME = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--rule)",
    BAND: "var(--band)",
    PAPER: "var(--paper)",
}
# Okabe and Ito's colours less black and yellow, then two of Tol's: told apart with any colour vision.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999933", "#aa4499")
WHOLE = "#707a86"
STAGES = {"draft": "#e69f00", "verify": "#0072b2", "commit": "#009e73"}

LOOK: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "x",
    "axes.labelcolor": INK,
    "axes.labelsize": 8.5,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 8.5,
    "figure.facecolor": PAPER,
    "figure.labelsize": 8.5,
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "savefig.facecolor": PAPER,
    "svg.fonttype": "path",
    "svg.hashsalt": "draftledger",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 8,
}


def look(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Let `draw` run under our look, whatever the user's own matplotlib settings."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.style.context(LOOK, after_reset=True):
            return draw(*args, **kwargs)

    return drawn


def blank(title: str, *, height: float) -> Figure:
    """Return an empty figure of one column's width; `height` in inches, `title` for screen readers."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.set_label(title)
    return figure


def note(title: str, message: str) -> Figure:
    """Return a figure that says why there is nothing to draw."""
    figure = blank(title, height=0.9)
    figure.text(0.5, 0.5, message, ha="center", va="center", color=MUTED, style="italic")
    return figure


def headline(axes: Axes, y: float, *, left: str, right: str) -> None:
    """Write a line across the figure at height `y` of the data: a name, and what is said of it."""
    across = blended_transform_factory(axes.figure.transSubfigure, axes.transData)
    # Paper behind the words keeps grid lines out of them.
    form = {"transform": across, "va": "center", "bbox": {"facecolor": PAPER, "linewidth": 0, "pad": 1}}
    name = short(left, max(24, 74 - len(right)))
    for text in (
        axes.text(0.012, y, name, ha="left", weight="bold", **form),
        axes.text(0.988, y, right, ha="right", color=MUTED, **form),
    ):
        text.set_in_layout(False)


def colours(arms: Sequence[str]) -> dict[str, str]:
    """Map arms, in the summary's order, to colours: an arm looks alike in all figures."""
    return {arm: PALETTE[place % len(PALETTE)] for place, arm in enumerate(arms)}


def short(name: str, length: int) -> str:
    """Return `name` with its middle left out where it is longer than `length` characters."""
    if len(name) <= length:
        return name
    tail = (length - 1) // 2
    return f"{name[: length - 1 - tail]}…{name[-tail:]}"


def svg(figure: Figure) -> str:
    """Return the figure as SVG: equal figures give equal bytes."""
    buffer = StringIO()
    metadata = {"Title": figure.get_label(), "Date": None, "Creator": None, "Format": None, "Type": None}
    with matplotlib.style.context(LOOK, after_reset=True):
        figure.savefig(buffer, format="svg", metadata=metadata)
    return buffer.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Write the figure to `path` as SVG."""
    path.write_text(svg(figure), encoding="utf-8", newline="\n")
