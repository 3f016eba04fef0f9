"""A recipe says how a payload was made: rule, settings, code, environment class and what it read."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from draftledger.errors import CorruptError
from draftledger.provenance.digest import digest

SCHEMA = 1

ENVIRONMENT = "environment.json"  # the role of the environment class, which a recipe names apart from its inputs


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a stage: its role (path under the results root) and its content digest."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides a payload; `key` names it in the store.

    `environment` is the class digest, or null for stages that give the same content on any machine.
    """

    rule: str
    spec: dict[str, Any]
    code: str
    environment: str | None
    inputs: tuple[Input, ...]

    @property
    def reads(self) -> tuple[Input, ...]:
        """Return all inputs, the environment class last."""
        return (*self.inputs, Input(ENVIRONMENT, self.environment)) if self.environment else self.inputs

    @property
    def key(self) -> str:
        """Return the action key: the digest of rule, spec, code, environment class and input contents."""
        return digest(asdict(self))


def recipe_path(payload: Path) -> Path:
    """Return where a payload's recipe lies: beside it."""
    return payload.with_name(payload.name + ".recipe.json")


def recipe_record(recipe: Recipe, *, draw: int) -> dict[str, Any]:
    """Return a recipe as it is written: the fields, the action key, and which draw of it this is."""
    return {"schema": SCHEMA, **asdict(recipe), "key": recipe.key, "draw": draw}


def read_recipe(payload: Path) -> tuple[Recipe, int]:
    """Read a payload's recipe and draw number; raise CorruptError when absent, unreadable or altered."""
    path = recipe_path(payload)
    try:
        return parse_recipe(path.read_bytes(), where=path)
    except FileNotFoundError:
        raise CorruptError(f"{path}: absent; run the rule that makes {payload.name} again") from None


def parse_recipe(data: bytes, *, where: object) -> tuple[Recipe, int]:
    """Read a recipe and draw number from its bytes; raise CorruptError, naming `where`, when unreadable or altered."""
    try:
        fields = json.loads(data)
        if fields["schema"] != SCHEMA:
            raise CorruptError(
                f"{where}: schema {fields['schema']!r:.20} is not {SCHEMA}; use the release that wrote it"
            )
        inputs = tuple(Input(**item) for item in fields["inputs"])
        recipe = Recipe(fields["rule"], fields["spec"], fields["code"], fields["environment"], inputs)
        key, draw = fields["key"], int(fields["draw"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptError(f"{where}: unreadable recipe ({error}); run its rule again") from None
    if key != recipe.key:
        raise CorruptError(f"{where}: the recipe does not give its own key; run its rule again")
    return recipe, draw
