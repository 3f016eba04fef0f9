"""Loss and agreement with the teacher by training step, every seed of every trained arm."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from draftledger.figures import style

TITLE = "Loss and agreement by training step"
CAPTION = (
    "Training (faint) and validation (marked) loss and agreement with the teacher's argmax by step; one line a "
    "seed and launch."
)
QUANTITIES = ("loss", "agreement")
FORMS: dict[str, dict[str, Any]] = {
    "train": {"alpha": 0.4, "linewidth": 0.8},
    "validation": {"linewidth": 1.0, "marker": "o", "markersize": 3},
}


@style.look
def draw(histories: Mapping[str, Sequence[pa.Table]], *, arms: Sequence[str] = ()) -> Figure:
    """Draw each arm's histories (one table a seed and launch): loss at the left, agreement at the right.

    arms: all arms of the summary in its order, so that an arm keeps its colour; the histories' own by default.
    """
    shown = {arm: tables for arm, tables in histories.items() if any(table.num_rows for table in tables)}
    if not shown:
        return style.note(TITLE, "no arm has a training history")
    figure = style.blank(TITLE, height=0.8 + 1.6 * len(shown))
    grid = figure.subplots(len(shown), 2, sharex=True, sharey="col", squeeze=False)
    shades = style.colours(list(dict.fromkeys([*arms, *histories])))
    for line, (arm, tables) in zip(grid, shown.items(), strict=True):
        for quantity, axes in zip(QUANTITIES, line, strict=True):
            _panel(axes, tables, quantity=quantity, colour=shades[arm])
        line[0].set_title(f"{style.short(arm, 30)}: loss", weight="bold")
        line[1].set_title("agreement with the teacher", weight="bold")
    figure.supxlabel("training step")
    keys = [Line2D([], [], color=style.INK, label=split, **form) for split, form in FORMS.items()]
    figure.legend(handles=keys, loc="outside upper left", ncols=2)
    return figure


def _panel(axes: Axes, tables: Sequence[pa.Table], *, quantity: str, colour: str) -> None:
    for table in tables:
        for split, form in FORMS.items():
            axes.plot(*_series(table, split, quantity), color=colour, **form)
    axes.grid(visible=True, axis="y")
    axes.grid(visible=False, axis="x")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))


def _series(table: pa.Table, split: str, quantity: str) -> tuple[np.ndarray, np.ndarray]:
    chosen = np.array(table["split"].to_pylist()) == split
    steps = np.array(table["step"].to_pylist(), float)[chosen]
    values = np.array(table[quantity].to_pylist(), float)[chosen]
    order = np.argsort(steps, kind="stable")
    return steps[order], values[order]
