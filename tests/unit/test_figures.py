"""Figures draw any summary, say what is absent, and give equal bytes for equal rows."""

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pyarrow as pa
import pytest
import synthetic_summary as synthetic
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from draftledger.errors import ConfigError
from draftledger.figures import categories, cost, cycle, dag, learning, page, speedup, style, survival

OF_SUMMARY = [speedup, survival, cycle, categories]
LONG = "a_drafter_with_a_long_name_and_settings_k8_entropy_0.35_block_16_rank_64"
FEW = synthetic.summary(synthetic.ARMS[:4])
HISTORIES = {"block_lora_k4": [synthetic.history(seed) for seed in range(3)]}


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(matplotlib.text.Text))


@pytest.mark.parametrize("module", OF_SUMMARY)
@pytest.mark.parametrize(
    "arms", [synthetic.ARMS, ("dflash",), ("ar", "mlx_lm_ar", LONG, "<script>$x$")], ids=["eight", "one", "odd"]
)
def test_a_summary_is_drawn_as_well_formed_svg(module, arms: tuple[str, ...]) -> None:
    figure = module.draw(synthetic.summary(arms))
    root = ElementTree.fromstring(style.svg(figure))
    assert root.tag.endswith("svg")
    assert root.findtext("{http://www.w3.org/2000/svg}title") == module.TITLE
    for arm in arms[2:] or arms:
        assert style.short(arm, 24)[:10] in texts(figure)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: speedup.draw(FEW),
        lambda: survival.draw(FEW),
        lambda: cycle.draw(FEW),
        lambda: categories.draw(FEW),
        lambda: cost.draw(synthetic.costs()),
        lambda: learning.draw(HISTORIES),
    ],
)
def test_equal_rows_give_equal_bytes_under_any_user_settings(draw: Callable[[], Figure]) -> None:
    first = style.svg(draw())
    with matplotlib.rc_context({"font.size": 20, "axes.grid": False, "svg.hashsalt": "other"}):
        assert style.svg(draw()) == first


@pytest.mark.parametrize("module", OF_SUMMARY)
def test_an_absent_metric_is_said(module) -> None:
    empty = synthetic.SCHEMA.empty_table()
    only = pa.Table.from_pylist([synthetic.row("loop_fraction", "ar", 0.0)], schema=synthetic.SCHEMA)
    for table in (empty, only):
        assert "no arm has" in texts(module.draw(table))


def test_absent_costs_and_histories_are_said() -> None:
    assert "no arm has" in texts(cost.draw(synthetic.costs().slice(0, 0)))
    assert "no arm has" in texts(learning.draw({"dflash": []}))


def test_speedup_without_interval_floor_or_verdict() -> None:
    bare = {"baseline": "ar", "low": None, "high": None, "confidence": None}
    table = pa.Table.from_pylist([synthetic.row("speedup_decode", "dflash", 1.5, **bare)], schema=synthetic.SCHEMA)
    words = texts(speedup.draw(table))
    assert "–" in words
    assert "no interval" in words
    assert "1.50" in words


def test_speedup_draws_the_floor_around_one() -> None:
    axes = speedup.draw(synthetic.summary(("dflash",))).axes[0]
    ends = axes.collections[0].get_paths()[0].vertices[:, 0]
    assert (ends.min(), ends.max()) == pytest.approx((1 / 1.03, 1.03))


def test_cycle_bars_end_at_the_sum_of_the_stages_and_say_the_cost_of_a_token() -> None:
    figure = cycle.draw(synthetic.summary(("dflash",)))
    ends = [bar.get_x() + bar.get_width() for bar in figure.axes[0].patches]
    assert ends == pytest.approx([9.0, 45.0, 47.4])
    assert "47.4 ms for 1.78 tokens: 26.6 ms each" in texts(figure)


def test_cycle_shows_a_baseline_without_stages_by_its_decode_speed() -> None:
    axes = cycle.draw(synthetic.summary()).axes[0]
    assert axes.patches[0].get_width() == pytest.approx(1000 / 31)


def test_every_category_value_is_written() -> None:
    words = texts(categories.draw(synthetic.summary())).split("\n")
    assert set(synthetic.CATEGORIES) <= set(words)
    assert sum(word.replace(".", "").isdigit() for word in words) == 6 * len(synthetic.CATEGORIES)


def test_arms_keep_their_colour_whatever_is_drawn() -> None:
    axes = learning.draw(HISTORIES, arms=synthetic.ARMS).axes[0]
    assert axes.lines[0].get_color() == style.colours(synthetic.ARMS)["block_lora_k4"]
    shades = style.colours(synthetic.ARMS)
    assert len(set(shades.values())) == len(synthetic.ARMS)
    assert style.colours(synthetic.ARMS[:3]) == {arm: shades[arm] for arm in synthetic.ARMS[:3]}


@given(intercept=st.floats(1, 50), slope=st.floats(0, 5), size=st.integers(4, 10))
def test_a_line_is_found_where_costs_are_linear(intercept: float, slope: float, size: int) -> None:
    widths = np.arange(1.0, size + 1)
    found = cost.line_where_it_holds(widths, intercept + slope * widths)
    assert found is not None
    assert found[:2] == pytest.approx((intercept, slope), abs=1e-6)
    assert found[2:] == (0, size - 1)


def test_a_line_stops_at_a_step_and_is_refused_where_none_holds() -> None:
    widths = np.arange(1.0, 9)
    stepped = np.where(widths <= 5, 10 + widths, 40 + widths)
    found = cost.line_where_it_holds(widths, stepped)
    assert found is not None
    assert found[2:] == (0, 4)
    assert cost.line_where_it_holds(widths, 2.0**widths) is None
    assert cost.line_where_it_holds(widths[:3], widths[:3]) is None


@given(st.text(max_size=60), st.integers(4, 40))
def test_short_names_keep_both_ends(name: str, length: int) -> None:
    cut = style.short(name, length)
    assert len(cut) == min(len(name), length)
    if len(name) > length:
        head, _, tail = cut.partition("…") if "…" not in name else (cut[:1], "", cut[-1:])
        assert name.startswith(head)
        assert name.endswith(tail)


def test_captions_of_report_and_page_agree() -> None:
    folder = Path(__file__).parents[2] / "rules" / "report"
    for name, module in page.FIGURES.items():
        assert " ".join((folder / f"{name}.rst").read_text(encoding="utf-8").split()) == module.CAPTION


def test_workflow_picture_names_every_rule_and_edge(tmp_path: Path) -> None:
    dag.main([str(tmp_path / "dag.svg")])
    drawn = (tmp_path / "dag.svg").read_text(encoding="utf-8")
    assert drawn == dag.draw(dag.WORKFLOW, dag.NOTES)
    root = ElementTree.fromstring(drawn)
    assert [node.text for node in root.iter() if node.get("class") == "name"] == [rule for rule, _ in dag.WORKFLOW]
    assert sum(node.get("class") == "edge" for node in root.iter()) == sum(len(more) for _, more in dag.WORKFLOW)
    assert {rule for rule, _ in dag.WORKFLOW} == set(dag.ABOUT)


def test_workflow_picture_escapes_and_refuses_an_unknown_input() -> None:
    ElementTree.fromstring(dag.draw([("a<b", []), ("c&d", ["a<b"])]))
    for rules in ([("windows", ["corpus"])], [("windows", ["corpus"]), ("corpus", [])], [("a", ["a"])]):
        with pytest.raises(ConfigError, match="not an earlier rule"):
            dag.draw(rules)
    with pytest.raises(ConfigError, match="usage"):
        dag.main([])


def test_committed_workflow_picture_is_current() -> None:
    path = Path(__file__).parents[2] / "docs" / "dag.svg"
    assert path.read_text(encoding="utf-8") == dag.draw(dag.WORKFLOW, dag.NOTES)
