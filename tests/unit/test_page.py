"""The page is whole, inert, self-contained and repeatable."""

import re
from html.parser import HTMLParser
from typing import Any

import pyarrow as pa
import pytest
import synthetic_summary as synthetic
from hypothesis import given, settings
from hypothesis import strategies as st

from draftledger.errors import CorruptError
from draftledger.figures import page, speedup, style, survival

EVIL = "<script>alert('x')</script>"
VOID = {"meta", "br"}


class Reader(HTMLParser):
    """Collects the elements, ids, texts of cells and headings of a page; fails on unbalanced tags."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.rows: list[list[str]] = []
        self.heads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")
        if tag == "h3":
            self.heads.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "td":
            self.rows[-1][-1] += data
        if self.open and self.open[-1] == "h3":
            self.heads[-1] += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert not reader.open
    return reader


def render(summary: pa.Table, **changes: Any) -> str:
    given: dict[str, Any] = {
        "title": "Drafters",
        "summary": summary,
        "figures": {},
        "environment": {"mlx": {"version": "0.32.0", "threads": 2}},
        "provenance": [{"artefact": "results/a.parquet", "rule": "decode", "content_digest": "f" * 64}],
    }
    return page.render(**(given | changes))


def test_every_row_of_the_summary_is_on_the_page() -> None:
    summary = synthetic.summary()
    rows = [cells for cells in read(render(summary)).rows if len(cells) == len(page.COLUMNS) + 1]
    assert len(rows) == summary.num_rows
    for place, (cells, row) in enumerate(zip(rows, summary.to_pylist(), strict=True)):
        assert cells[:5] == [str(place), row["metric"], row["arm"], row["baseline"] or "", row["scope"]]
        assert float(cells[6]) == pytest.approx(row["estimate"], rel=1e-3)


def test_the_head_says_what_was_found_of_each_arm() -> None:
    html = render(synthetic.summary())
    assert "6 arms timed against autoregressive decoding: 4 faster, 2 undecidable at this size." in html
    assert read(html).heads == sorted(synthetic.ARMS[2:])
    assert "1.82 times (1.71 to 1.93) the speed of ar and 1.71 times (1.61 to 1.81) the speed of mlx_lm_ar" in html
    assert "undecidable at this size (MDE 12\N{NO-BREAK SPACE}%)" in html
    assert "population: seeds and prompts" in html


def test_controls_and_baselines_are_not_claims() -> None:
    rows = [
        synthetic.row("speedup_decode", arm, 1.0, baseline="ar", verdict=word)
        for arm, word in (("mlx_lm_ar", None), ("ar_twin", None), ("dflash", "no floor"))
    ]
    html = render(pa.Table.from_pylist(rows, schema=synthetic.SCHEMA))
    assert "1 arm timed against autoregressive decoding: 1 no floor." in html
    assert read(html).heads == ["dflash"]


def test_equal_arguments_give_equal_bytes_and_figures_keep_the_known_order() -> None:
    summary = synthetic.summary()
    figures = {"survival": style.svg(survival.draw(summary)), "speedup": style.svg(speedup.draw(summary))}
    html = render(summary, figures=figures)
    assert html == render(summary, figures=dict(reversed(figures.items())))
    ids = read(html).ids
    assert len(ids) == len(set(ids))
    assert ids.index("figure-speedup") < ids.index("figure-survival")
    references = set(re.findall(r'(?:href="#|url\(#)([^")]+)', html))
    assert references <= set(ids)
    assert style.INK not in html.split("<svg", 1)[1].split("</svg>")[0]


def test_nothing_is_fetched() -> None:
    summary = synthetic.summary()
    html = render(summary, figures={"speedup": style.svg(speedup.draw(summary))})
    assert "default-src 'none'" in html
    tags = set(read(html).tags)
    assert not tags & {"link", "img", "iframe", "image", "object", "embed"}
    assert not re.search(r"""(src|href)=["'](?!#)|@import|url\((?!#)""", html)


def test_markup_in_names_is_inert() -> None:
    summary = synthetic.summary(("ar", "mlx_lm_ar", EVIL))
    html = render(
        summary,
        title=EVIL,
        figures={"speedup": style.svg(speedup.draw(summary))},
        environment={EVIL: EVIL},
        provenance=[{"artefact": EVIL, "rule": EVIL, "content_digest": '"><script>'}],
    )
    assert html.lower().count("<script") == 1
    assert read(html).heads == [EVIL]


@settings(max_examples=25, deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=30))
def test_any_arm_name_is_read_back_as_it_was(name: str) -> None:
    row = synthetic.row("speedup_decode", name, 1.2, baseline="ar", verdict="faster")
    reader = read(render(pa.Table.from_pylist([row], schema=synthetic.SCHEMA)))
    assert reader.rows[1][2] == name
    assert reader.heads == [name]
    assert reader.tags.count("script") == 1


def test_an_empty_summary_is_said() -> None:
    html = render(synthetic.SCHEMA.empty_table())
    assert "nothing was timed" in html


@pytest.mark.parametrize("svg", ["", "<p>no picture</p>", "<svg><SCRIPT>x</SCRIPT></svg>"])
def test_a_figure_that_is_not_a_picture_is_refused(svg: str) -> None:
    with pytest.raises(CorruptError, match="figure speedup"):
        render(synthetic.summary(("dflash",)), figures={"speedup": svg})
