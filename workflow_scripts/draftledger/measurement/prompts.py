"""Evaluation prompts: one JSON object a line, checked before anything is decoded."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from draftledger.errors import ConfigError

SPLITS = ("development", "report")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt; policies are chosen on the split `development`, numbers come from `report`."""

    id: str
    category: str
    split: str
    text: str


def load_prompts(
    path: Path,
    *,
    split: str | None,
    categories: Iterable[str] | None = None,
    per_category: int | None = None,
) -> list[Prompt]:
    """Read prompts in file order: of one split (None: both), of some categories, the first few of each.

    Raises:
        ConfigError: with the line number for a bad line; also when the file has no such split or category, or
            a category has fewer than `per_category` prompts.
    """
    if split is not None and split not in SPLITS:
        raise ConfigError(f"prompt split {split!r} is unknown; use {' or '.join(SPLITS)}")
    prompts = [prompt for prompt in _read(path) if split in (None, prompt.split)]
    wanted = sorted({prompt.category for prompt in prompts} if categories is None else set(categories))
    groups = [[prompt for prompt in prompts if prompt.category == name] for name in wanted]
    for name, group in zip(wanted, groups, strict=True):
        if len(group) < (1 if per_category is None else max(per_category, 1)):
            raise ConfigError(
                f"{path}: category {name!r} has {len(group)} prompts in split {split or 'any'}, "
                f"{per_category or 1} are asked for; lower per_category or add prompts"
            )
    chosen = {prompt for group in groups for prompt in group[:per_category]}
    if not chosen:
        raise ConfigError(f"{path}: no prompt is selected; set per_category to at least 1 or add prompts")
    return [prompt for prompt in prompts if prompt in chosen]


def _read(path: Path) -> list[Prompt]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as UTF-8 text ({error.__class__.__name__})") from error
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    prompts = [_parse(line, where=f"{path} line {number}") for number, line in numbered]
    seen: Counter[str] = Counter()
    for (number, _), prompt in zip(numbered, prompts, strict=True):
        seen[prompt.id] += 1
        if seen[prompt.id] > 1:
            raise ConfigError(f"{path} line {number}: id {prompt.id!r} is used before; ids must be unique")
    return prompts


def _parse(line: str, *, where: str) -> Prompt:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not JSON; write one object a line") from error
    names = {field.name for field in fields(Prompt)}
    if not isinstance(row, dict) or set(row) != names:
        raise ConfigError(f"{where}: must be an object with exactly the keys {', '.join(sorted(names))}")
    empty = [name for name in sorted(names) if not isinstance(row[name], str) or not row[name].strip()]
    if empty:
        raise ConfigError(f"{where}: {', '.join(empty)} must be text and not empty")
    if row["split"] not in SPLITS:
        raise ConfigError(f"{where}: split {row['split']!r} is unknown; use {' or '.join(SPLITS)}")
    return Prompt(**row)
