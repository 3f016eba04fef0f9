"""Digest of the code that a stage runs: its import closure without comments and docstrings."""

import ast
import json
from functools import cache
from pathlib import Path
from typing import Any

from draftledger.errors import ConfigError
from draftledger.provenance.digest import digest
from draftledger.provenance.syntax import form

ACCEPTED = Path("config/accepted.json")


def code_digest(entries: list[Path], *, root: Path) -> str:
    """Return the digest of every local module that the entry files reach by import.

    `root` is the folder that holds the scripts and the package; comments, docstrings and layout do not count. A
    page template beside a module of its name counts with it, by its bytes.
    """
    names = sorted(_closure([path.resolve() for path in entries], root.resolve()))
    return digest([[path.relative_to(root.resolve()).as_posix(), _stripped(path)] for path in names])


def _closure(entries: list[Path], root: Path) -> set[Path]:
    seen: set[Path] = set()
    todo = list(entries)
    while todo:
        path = todo.pop()
        if path not in seen:
            seen.add(path)
            todo.extend(_imports(path, root))
    return seen


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


@cache
def _imports(path: Path, root: Path) -> tuple[Path, ...]:
    names: set[str] = set()
    for node in ast.walk(_tree(path)) if path.suffix == ".py" else ():
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ConfigError(f"{path}:{node.lineno}: relative import; write the full module name")
            names.update({f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)})
    return tuple(sorted({found for name in names for found in _files(name, root)}))


def _files(name: str, root: Path) -> list[Path]:
    parts = name.split(".")
    if parts[0] != "draftledger":
        return []
    steps = [root.joinpath(*parts[: depth + 1]) for depth in range(len(parts))]
    files = [(step.with_suffix(".py"), step / "__init__.py", step.with_suffix(".html")) for step in steps]
    return [path for step in files for path in step if path.is_file()]


@cache
def _stripped(path: Path) -> str:
    return form(_tree(path)) if path.suffix == ".py" else path.read_text()


def accepted(path: Path) -> list[dict[str, Any]]:
    """Read the recorded harmless edits: stage, old digest, new digest, reason, date."""
    try:
        edits = json.loads(path.read_text())["edits"] if path.is_file() else []
        return [{**edit, **{key: str(edit[key]) for key in ("stage", "old", "new")}} for edit in edits]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path}: unreadable ({error}); restore it from version control") from None


def resolve(stage: str, code: str, edits: list[dict[str, Any]]) -> str:
    """Follow the accepted edits of a stage from today's digest back to the one that made the results."""
    older = {edit["new"]: edit["old"] for edit in edits if edit["stage"] == stage}
    seen = {code}
    while code in older and older[code] not in seen:
        code = older[code]
        seen.add(code)
    return code


def in_force(edits: list[dict[str, Any]], codes: set[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return the edits that lead back to a digest which counts today; `codes` are pairs of stage and that digest."""
    return [edit for edit in edits if (edit["stage"], resolve(edit["stage"], edit["new"], edits)) in codes]
