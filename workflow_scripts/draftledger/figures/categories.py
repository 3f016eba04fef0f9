"""Accepted tokens per round by prompt category."""

import matplotlib
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from draftledger.figures import style
from draftledger.figures.table import arms, number

TITLE = "Accepted tokens per round by category"
CAPTION = (
    "Speculative tokens accepted per round, by arm and prompt category; darker is fewer. An empty cell was not "
    "measured."
)
METRIC, PREFIX = "accepted_per_round", "category:"


@style.look
def draw(summary: pa.Table) -> Figure:
    """Draw a heat map with the number in each cell: arms down, categories across."""
    cells = {
        (row["arm"], row["scope"].removeprefix(PREFIX)): row["estimate"]
        for row in summary.to_pylist()
        if row["metric"] == METRIC and row["scope"].startswith(PREFIX)
    }
    if not cells:
        return style.note(TITLE, "no arm has accepted tokens by category")
    rows = [arm for arm in arms(summary) if any(arm == key for key, _ in cells)]
    columns = sorted({category for _, category in cells})
    figure = style.blank(TITLE, height=0.95 + 0.27 * len(rows))
    axes = figure.add_subplot()
    norm = Normalize(min(cells.values()), max(max(cells.values()), min(cells.values()) + 1e-9))
    for (arm, category), value in cells.items():
        _cell(axes, columns.index(category), rows.index(arm), value=value, norm=norm)
    _frame(axes, rows, columns)
    return figure


def _cell(axes: Axes, x: int, y: int, *, value: float, norm: Normalize) -> None:
    # The ends of the scale are left out: one vanishes on dark paper.
    shade = matplotlib.colormaps["cividis"](0.08 + 0.92 * norm(value))
    axes.add_patch(Rectangle((x + 0.02, y + 0.03), 0.96, 0.94, facecolor=shade, linewidth=0))
    luminance = 0.2126 * shade[0] + 0.7152 * shade[1] + 0.0722 * shade[2]
    ink = "#000000" if luminance > 0.45 else "#ffffff"
    axes.text(x + 0.5, y + 0.5, number(value), ha="center", va="center", color=ink, fontsize=7.5)


def _frame(axes: Axes, rows: list[str], columns: list[str]) -> None:
    axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
    axes.grid(visible=False)
    axes.set_yticks([y + 0.5 for y in range(len(rows))], [style.short(row, 26) for row in rows])
    names = [style.short(column, 20) for column in columns]
    axes.set_xticks([x + 0.5 for x in range(len(columns))], names, rotation=35, ha="right", rotation_mode="anchor")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
