"""Decode speed-up of each arm against both autoregressive baselines."""

import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from draftledger.figures import style
from draftledger.figures.table import BASELINES, Row, arms, by_arm, confidence, pick, verdict, with_interval

TITLE = "Decode speed-up"
CAPTION = (
    "Decode speed-up of each arm: geometric mean of paired per-prompt ratios with its interval, against this "
    "workflow's autoregressive loop (filled) and mlx-lm's (open). The band is the floor: two runs of the same "
    "arm differ by as much. An arm without a verdict is a control of the measurement."
)
TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0)
FINE_TICKS = (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8)


@style.look
def draw(summary: pa.Table) -> Figure:
    """Draw speed-ups with intervals, floor and verdict; a logarithmic axis, since these are ratios."""
    rows = [row for row in pick(summary, "speedup_decode") if row["arm"] not in BASELINES]
    groups = by_arm(rows)
    if not groups:
        return style.note(TITLE, "no arm has a decode speed-up")
    figure = style.blank(TITLE, height=0.7 + 0.62 * len(groups))
    axes = figure.add_subplot()
    shades = style.colours(arms(summary))
    ticks = [tick for place, group in enumerate(groups.values()) for tick in _arm(axes, place, group, shades)]
    axes.set_yticks([y for y, _ in ticks], [baseline for _, baseline in ticks])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(groups) - 0.08, -0.1)
    axes.spines["left"].set_visible(False)
    axes.axvline(1.0, color=style.INK, linewidth=0.8)
    _scale(axes, rows)
    return figure


def _arm(axes: Axes, place: int, rows: list[Row], shades: dict[str, str]) -> list[tuple[float, str]]:
    style.headline(axes, place + 0.12, left=rows[0]["arm"], right=verdict(rows))
    ticks = []
    for row in rows:
        known = BASELINES.index(row["baseline"]) if row["baseline"] in BASELINES else len(BASELINES)
        y = place + 0.4 + 0.27 * known
        _ratio(axes, y, row, colour=shades[row["arm"]], filled=known == 0)
        ticks.append((y, row["baseline"]))
    return ticks


def _ratio(axes: Axes, y: float, row: Row, *, colour: str, filled: bool) -> None:
    if row["floor"] is not None:
        edge = 1 + row["floor"]
        axes.fill_betweenx([y - 0.135, y + 0.135], 1 / edge, edge, color=style.BAND, linewidth=0)
    if row["low"] is not None and row["high"] is not None:
        axes.plot([row["low"], row["high"]], [y, y], color=colour, solid_capstyle="butt")
    face = colour if filled else style.PAPER
    axes.plot(row["estimate"], y, "o", color=colour, markerfacecolor=face, markeredgewidth=1.3)
    axes.text(1.01, y, with_interval(row), va="center", fontsize=8, transform=axes.get_yaxis_transform())


def _scale(axes: Axes, rows: list[Row]) -> None:
    ends = [row[key] for row in rows for key in ("estimate", "low", "high") if row[key] is not None]
    low, high = min(0.95, *ends) / 1.04, max(1.05, *ends) * 1.04
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(TICKS if high / low > 2.5 else FINE_TICKS))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.set_xlabel(f"decode speed-up, with {confidence(rows)}; shaded: the floor")
