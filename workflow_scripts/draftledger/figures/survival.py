"""Joint survival of the draft, slot by slot, one panel an arm."""

import math

import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from draftledger.figures import style
from draftledger.figures.table import Row, arms, by_arm, pick

TITLE = "Joint survival by slot"
CAPTION = (
    "Joint survival: the share of rounds that accept every speculative token up to and including this slot, "
    "with its interval. The other arms stand behind each panel in grey."
)


@style.look
def draw(summary: pa.Table) -> Figure:
    """Draw one panel an arm, two side by side, on common axes."""
    rows = sorted(pick(summary, "survival_joint"), key=lambda row: row["slot"])
    groups = by_arm(rows)
    shown = [arm for arm in arms(summary) if arm in groups]
    if not shown:
        return style.note(TITLE, "no arm has a joint survival")
    columns = min(2, len(shown))
    lines = math.ceil(len(shown) / columns)
    figure = style.blank(TITLE, height=0.7 + 1.35 * lines if columns > 1 else 2.6)
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flat
    shades = style.colours(arms(summary))
    for arm, axes in zip(shown, panels, strict=False):
        _panel(axes, groups, arm=arm, colour=shades[arm])
    for axes in list(panels)[len(shown) :]:
        axes.set_visible(False)
    _label(figure, list(figure.axes)[: len(shown)], columns)
    return figure


def _panel(axes: Axes, groups: dict[str, list[Row]], *, arm: str, colour: str) -> None:
    for other, rows in groups.items():
        if other != arm:
            axes.plot(*_line(rows), color=style.GRID, linewidth=1.0, zorder=1)
    closed = [row for row in groups[arm] if row["low"] is not None and row["high"] is not None]
    slots = [row["slot"] for row in closed]
    axes.vlines(slots, [row["low"] for row in closed], [row["high"] for row in closed], color=colour, zorder=2)
    axes.plot(*_line(groups[arm]), "o-", color=colour, linewidth=1.2, markersize=3.5, zorder=3)
    axes.set_title(style.short(arm, 36), weight="bold")


def _line(rows: list[Row]) -> tuple[list[int], list[float]]:
    return [row["slot"] for row in rows], [row["estimate"] for row in rows]


def _label(figure: Figure, panels: list[Axes], columns: int) -> None:
    panels[0].set_ylim(0, 1.02)
    panels[0].xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    panels[0].yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    for place, axes in enumerate(panels):
        axes.grid(visible=True, axis="y")
        axes.grid(visible=False, axis="x")
        axes.tick_params(labelbottom=place >= len(panels) - columns)
    figure.supxlabel("slot of the speculative token")
    figure.supylabel("joint survival")
