"""Numbers are worded alike everywhere, and no row or column is lost."""

import csv
from io import StringIO

import pyarrow as pa
import pytest
import synthetic_summary as synthetic
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from draftledger.figures import table
from draftledger.statistics.rows import SCHEMA


def shown(summary: pa.Table, width: int) -> str:
    console = Console(width=width, file=StringIO(), color_system=None)
    console.print(table.terminal_table(summary))
    return console.file.getvalue()


def of(*rows: dict[str, object]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=synthetic.SCHEMA)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.234, "1.23"), (0.9996, "1.00"), (0.0, "0.00"), (-12.34, "-12.3"), (1234.5, "1234"), (0.001234, "0.00123")],
)
def test_number_keeps_three_digits(value: float, text: str) -> None:
    assert table.number(value) == text


@given(st.floats(1e-9, 1e9), st.sampled_from([-1, 1]))
def test_number_is_near_its_value(size: float, sign: int) -> None:
    value = sign * size
    assert float(table.number(value)) == pytest.approx(value, rel=5.1e-3)
    assert "e" not in table.number(value)


def test_an_absent_number_is_a_dash() -> None:
    assert table.number(None) == table.number(float("nan")) == table.ABSENT
    assert table.with_interval(None) == table.ABSENT


def test_the_rows_of_these_tests_have_the_columns_of_the_summary() -> None:
    assert synthetic.SCHEMA.names == SCHEMA.names
    assert synthetic.SCHEMA.types == SCHEMA.types


def test_rows_are_picked_and_grouped_in_order() -> None:
    summary = synthetic.summary()
    others = sorted(synthetic.ARMS[2:])
    assert table.arms(summary) == ["ar", "mlx_lm_ar", *others]
    rows = table.pick(summary, "speedup_decode")
    assert list(table.by_arm(rows)) == ["ar", *others[:3], "lookup", "mlx_lm_ar", *others[4:]]
    assert [len(group) for group in table.by_arm(rows).values()] == [1, 2, 2, 2, 2, 1, 2, 2]
    assert len(table.pick(summary, "accepted_per_round", scope="category:code")) == 6


def test_verdict_names_the_baselines_only_where_they_differ() -> None:
    rows = [
        synthetic.row("speedup_decode", "a", 1.1, baseline=baseline, verdict=word)
        for baseline, word in (("ar", "faster"), ("mlx_lm_ar", "undecidable"))
    ]
    assert table.verdict(rows) == "ar: faster; mlx_lm_ar: undecidable"
    assert table.verdict(rows[:1]) == "faster"
    assert table.verdict([]) == table.ABSENT


def test_confidence_says_each_level_once() -> None:
    rows = [synthetic.row("m", "a", 1.0, confidence=level) for level in (0.95, 0.9, 0.95, None)]
    assert table.confidence(rows) == "90 or 95 % interval"
    assert table.confidence(rows[3:]) == "no interval"


def test_markdown_has_one_line_an_arm() -> None:
    lines = table.markdown_table(synthetic.summary()).splitlines()
    assert len(lines) == 2 + len(synthetic.ARMS)
    assert {line.count(" | ") for line in lines} == {len(table.HEADS) - 1}
    expected = "| dflash | 3.43 [3.22, 3.63] | 0.607 [0.571, 0.643] | 53.4 | 1.66 [1.56, 1.76] | 1.56 [1.47, 1.65] |"
    assert f"{expected} faster |" in lines


def test_markdown_escapes_what_would_break_it() -> None:
    text = table.markdown_table(synthetic.summary(("a|b<i>\nc",)))
    assert len(text.splitlines()) == 3
    assert "a\\|b&lt;i> c" in text


def test_a_metric_that_an_arm_lacks_is_a_dash() -> None:
    text = table.markdown_table(of(synthetic.row("loop_fraction", "ar", 0.0)))
    assert text.splitlines()[-1] == f"| ar |{f' {table.ABSENT} |' * 6}"


@pytest.mark.parametrize("width", [80, 160])
def test_terminal_table_fits_and_keeps_names_whole(width: int) -> None:
    text = shown(synthetic.summary(), width)
    assert all(len(line) <= width for line in text.splitlines())
    for arm in synthetic.ARMS:
        assert arm in text


def test_terminal_table_takes_names_as_text_and_folds_long_ones() -> None:
    assert "[red]x[/red]" in shown(synthetic.summary(("[red]x[/red]",)), 160)
    text = shown(synthetic.summary(("n" * 200,)), 80)
    assert text.count("n") >= 200
    assert shown(synthetic.SCHEMA.empty_table(), 80)


def test_tsv_holds_every_row_and_column() -> None:
    summary = synthetic.summary()
    head, *rows = csv.reader(StringIO(table.tsv(summary)), delimiter="\t")
    assert head == summary.column_names
    assert len(rows) == summary.num_rows
    assert [float(row[head.index("estimate")]) for row in rows] == summary["estimate"].to_pylist()
    assert rows[0][head.index("inputs")] == f"{'a' * 64},{'b' * 64}"
    assert rows[0][head.index("verdict")] == ""


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=20))
def test_tsv_keeps_any_name(name: str) -> None:
    text = table.tsv(of(synthetic.row("m", name, 1.0)))
    assert list(csv.reader(StringIO(text, newline=""), delimiter="\t"))[1][1] == name
