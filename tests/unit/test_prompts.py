"""Prompt files: what ships is sound, and every kind of bad line is named."""

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml

from draftledger.errors import ConfigError
from draftledger.measurement.prompts import SPLITS, load_prompts

SHIPPED = Path(__file__).parents[2] / "config" / "prompts"
GOOD = {"id": "code-01", "category": "code", "split": "report", "text": "Write a loop."}


def written(tmp_path: Path, *rows: object) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def test_the_default_prompts_cover_nine_categories_in_both_splits() -> None:
    prompts = load_prompts(SHIPPED / "default.jsonl", split=None)
    per_cell = Counter((prompt.category, prompt.split) for prompt in prompts)
    assert len({prompt.category for prompt in prompts}) >= 9
    assert len(prompts) >= 72
    assert all(per_cell[category, split] >= 4 for category, _ in per_cell for split in SPLITS)
    assert len({" ".join(prompt.text.split()[:3]).lower() for prompt in prompts}) == len(prompts)


def test_the_drafting_prompts_have_twelve_report_prompts_a_kind_and_no_training_template() -> None:
    prompts = load_prompts(SHIPPED / "drafting.jsonl", split=None)
    per_kind = Counter(prompt.category for prompt in prompts if prompt.split == "report")
    assert set(per_kind) == {"chat", "code", "maths", "prose"}
    assert min(per_kind.values()) >= 12
    templates = yaml.safe_load((SHIPPED.parent / "questions" / "default.yaml").read_text())["kinds"]
    asked = {run for texts in templates.values() for text in texts for run in _runs(text)}
    assert not [prompt.id for prompt in prompts if _runs(prompt.text) & asked]


def _runs(text: str, words: int = 5) -> set[tuple[str, ...]]:
    split = text.lower().split()
    return {tuple(split[at : at + words]) for at in range(len(split) - words + 1)}


def test_the_tiny_prompts_begin_documents_of_the_grammar() -> None:
    prompts = load_prompts(SHIPPED / "tiny.jsonl", split=None)
    assert {prompt.category for prompt in prompts} == {"list", "record", "sum", "story", "code"}
    assert {prompt.split for prompt in prompts} == set(SPLITS)
    assert all(8 <= len(prompt.text) <= 40 for prompt in prompts)


def test_selection_keeps_file_order_and_takes_the_first_of_each_category(tmp_path: Path) -> None:
    rows = [GOOD | {"id": f"{c}-{n}", "category": c} for n in range(3) for c in ("math", "code", "prose")]
    path = written(tmp_path, *rows)
    chosen = load_prompts(path, split="report", categories=["code", "math"], per_category=2)
    assert [prompt.id for prompt in chosen] == ["math-0", "code-0", "math-1", "code-1"]
    assert len(load_prompts(path, split=None)) == 9


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("{", "line 2: not JSON"),
        ("[1]", "line 2: must be an object"),
        (GOOD | {"note": "x"}, "line 2: must be an object with exactly the keys"),
        ({"id": "x"}, "line 2: must be an object with exactly the keys"),
        (GOOD | {"id": "b", "text": "  "}, "line 2: text must be text and not empty"),
        (GOOD | {"id": 7}, "line 2: id must be text"),
        (GOOD | {"id": "b", "split": "test"}, "line 2: split 'test' is unknown"),
        (GOOD, "line 2: id 'code-01' is used before"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, row: object, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load_prompts(written(tmp_path, GOOD, row), split="report")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"split": "test"}, "split 'test' is unknown"),
        ({"split": "development"}, "no prompt is selected"),
        ({"split": "report", "categories": ["maths"]}, "category 'maths' has 0 prompts"),
        ({"split": "report", "per_category": 2}, "has 1 prompts in split report, 2 are asked for"),
        ({"split": "report", "per_category": 0}, "no prompt is selected"),
    ],
)
def test_a_selection_that_cannot_be_met_is_refused(tmp_path: Path, asked: dict, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load_prompts(written(tmp_path, GOOD), **asked)


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.jsonl").write_bytes(b"\xe9")
    for name in ("absent.jsonl", "latin.jsonl"):
        with pytest.raises(ConfigError, match="cannot be read"):
            load_prompts(tmp_path / name, split="report")
