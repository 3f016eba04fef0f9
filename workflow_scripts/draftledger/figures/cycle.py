"""Where a round's time goes: draft, verify and commit, beside one autoregressive step."""

import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from draftledger.figures import style
from draftledger.figures.table import BASELINES, STAGE_METRICS, arms, number, pick

TITLE = "Time per round by stage"
CAPTION = (
    "Milliseconds per round spent in draft, verify and commit (staged runs), and what a committed token then "
    "costs. An autoregressive baseline without stages shows its time per token, from its decode speed."
)
WHOLE, SPEED = "one token", "decode_tokens_per_second"


@style.look
def draw(summary: pa.Table) -> Figure:
    """Draw one stacked bar an arm, in milliseconds."""
    costs = {metric: _estimates(summary, metric) for metric in (*STAGE_METRICS, SPEED)}
    bars = {arm: parts for arm in arms(summary) if (parts := _parts(costs, arm))}
    if not bars:
        return style.note(TITLE, "no arm has stage costs")
    figure = style.blank(TITLE, height=0.85 + 0.44 * len(bars))
    axes = figure.add_subplot()
    longest = max(sum(parts.values()) for parts in bars.values())
    tokens = _estimates(summary, "tokens_per_round")
    for place, (arm, parts) in enumerate(bars.items()):
        style.headline(axes, place - 0.36, left=arm, right=_cost(parts, tokens.get(arm)))
        _bar(axes, place, parts, longest=longest)
    axes.set(ylim=(len(bars) - 0.6, -0.62), xlim=(0, longest), yticks=[], xlabel="milliseconds per round")
    axes.spines["left"].set_visible(False)
    _legend(figure, {stage for parts in bars.values() for stage in parts})
    return figure


def _estimates(summary: pa.Table, metric: str) -> dict[str, float]:
    return {row["arm"]: row["estimate"] for row in pick(summary, metric)}


def _parts(costs: dict[str, dict[str, float]], arm: str) -> dict[str, float]:
    stages = zip(style.STAGES, STAGE_METRICS, strict=True)
    parts = {stage: costs[metric][arm] for stage, metric in stages if arm in costs[metric]}
    if parts or arm not in BASELINES or arm not in costs[SPEED]:
        return parts
    return {WHOLE: 1000 / costs[SPEED][arm]}


def _cost(parts: dict[str, float], tokens: float | None) -> str:
    total = sum(parts.values())
    if WHOLE in parts or tokens is None:
        return f"{number(total)} ms"
    return f"{number(total)} ms for {number(tokens)} tokens: {number(total / tokens)} ms each"


def _bar(axes: Axes, place: int, parts: dict[str, float], *, longest: float) -> None:
    left = 0.0
    for stage, width in parts.items():
        axes.barh(place, width, height=0.36, left=left, color=style.STAGES.get(stage, style.WHOLE))
        if width > 0.09 * longest:
            ink = "#000000" if stage == "draft" else "#ffffff"
            axes.text(left + width / 2, place + 0.01, number(width), ha="center", va="center", color=ink, fontsize=7.5)
        left += width


def _legend(figure: Figure, drawn: set[str]) -> None:
    kinds = {**style.STAGES, WHOLE: style.WHOLE}
    keys = [Patch(color=colour, label=stage) for stage, colour in kinds.items() if stage in drawn]
    figure.legend(handles=keys, loc="outside upper left", ncols=len(keys), handlelength=1.0, columnspacing=1.4)
