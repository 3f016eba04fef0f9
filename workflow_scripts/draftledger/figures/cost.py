"""Cost of one forward against its width, with a line only where a line holds."""

from itertools import combinations

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from draftledger.figures import style
from draftledger.figures.table import number

TITLE = "Forward cost by width"
CAPTION = (
    "Milliseconds of one forward against its width in tokens: every measurement, the median at each width, and "
    "a straight line over the longest run of widths whose medians it meets within 5 %."
)
TOLERANCE = 0.05
FEWEST = 4


@style.look
def draw(table: pa.Table) -> Figure:
    """Draw `width`, `milliseconds` for each `kind` (`verify`, `draft`)."""
    kinds = {kind: _points(table, kind) for kind in sorted(set(table["kind"].to_pylist()), reverse=True)}
    if not kinds:
        return style.note(TITLE, "no arm has forward costs by width")
    figure = style.blank(TITLE, height=2.9)
    axes = figure.add_subplot()
    for kind, (widths, times) in kinds.items():
        _curve(axes, widths, times, kind=kind)
    axes.set(xlabel="tokens in the forward", ylabel="milliseconds")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=True, axis="y")
    figure.legend(loc="outside upper left", handlelength=1.6)
    return figure


def line_where_it_holds(widths: np.ndarray, times: np.ndarray) -> tuple[float, float, int, int] | None:
    """Return intercept, slope, first and last place of the longest run that one line fits, or None.

    widths, times: [W] float64, widths ascending. A line fits a run of at least four widths when it meets each
    within 5 %; of equally long runs the first is taken.
    """
    runs = sorted(combinations(range(len(widths)), 2), key=lambda run: (run[0] - run[1], run[0]))
    for first, last in runs:
        if last - first + 1 < FEWEST:
            return None
        x, y = widths[first : last + 1], times[first : last + 1]
        slope, intercept = np.polyfit(x, y, 1)
        if np.all(np.abs(intercept + slope * x - y) <= TOLERANCE * y):
            return float(intercept), float(slope), first, last
    return None


def _points(table: pa.Table, kind: str) -> tuple[np.ndarray, np.ndarray]:
    chosen = np.array(table["kind"].to_pylist()) == kind
    return np.array(table["width"].to_pylist(), float)[chosen], np.array(table["milliseconds"].to_pylist(), float)[
        chosen
    ]


def _curve(axes: Axes, widths: np.ndarray, times: np.ndarray, *, kind: str) -> None:
    colour = style.STAGES.get(kind, style.WHOLE)
    places = np.unique(widths)
    medians = np.array([np.median(times[widths == place]) for place in places])
    axes.plot(widths, times, "o", color=colour, alpha=0.3, markersize=3, markeredgewidth=0)
    fit = line_where_it_holds(places, medians)
    axes.plot(places, medians, "o", color=colour, label=f"{kind}: {_words(fit, places)}")
    if fit:
        intercept, slope, first, last = fit
        ends = places[[first, last]]
        axes.plot(ends, intercept + slope * ends, color=colour, linewidth=1.2)


def _words(fit: tuple[float, float, int, int] | None, places: np.ndarray) -> str:
    if fit is None:
        return "no line holds"
    intercept, slope, first, last = fit
    sign = "−" if slope < 0 else "+"
    span = f"widths {places[first]:g} to {places[last]:g}"
    return f"{number(intercept)} {sign} {number(abs(slope))} × width milliseconds, {span}"
