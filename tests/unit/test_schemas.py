"""The JSON Schemas of manifests and recipes accept what the code writes and refuse what it would refuse to read."""

import json
from copy import deepcopy
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from draftledger.provenance.manifest import Manifest
from releases import Desk

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"
KINDS = ("manifest", "recipe")


def validator(kind: str) -> Draft202012Validator:
    schema = json.loads((SCHEMAS / f"{kind}.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.fixture(scope="module")
def records(tmp_path_factory) -> dict[str, list[dict]]:
    """Return every record of results of every kind."""
    folder = Desk(tmp_path_factory.mktemp("desk")).home.folder
    return {kind: [json.loads(path.read_text()) for path in sorted(folder.rglob(f"*.{kind}.json"))] for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_accepted(records, kind):
    known = [record for record in records[kind] if record.get("rule") != "ledger"]  # made with a short code digest
    assert len(known) >= 6
    assert [error.message for record in known for error in validator(kind).iter_errors(record)] == []


def test_the_schema_has_the_manifest_s_fields(records):
    schema = json.loads((SCHEMAS / "manifest.schema.json").read_text())
    assert set(schema["properties"]) == set(schema["required"]) == set(Manifest.__dataclass_fields__)
    assert set(records["recipe"][0]) == set(json.loads((SCHEMAS / "recipe.schema.json").read_text())["required"])


MUTATIONS = [
    ("manifest", "schema", 2),
    ("manifest", "schema", "1"),
    ("manifest", "name", "a/b"),
    ("manifest", "name", ""),
    ("manifest", "name", "../x"),
    ("manifest", "name", "a\nb"),
    ("manifest", "name", "a\n"),
    ("manifest", "kind", ""),
    ("manifest", "bytes", -1),
    ("manifest", "bytes", 1.5),
    ("manifest", "bytes", True),
    ("manifest", "sha256", "A" * 64),
    ("manifest", "sha256", "a" * 63),
    ("manifest", "sha256", "a" * 64 + "\n"),
    ("manifest", "content", None),
    ("manifest", "counts", []),
    ("manifest", "counts", {"rows": -1}),
    ("manifest", "counts", {"rows": "1"}),
    ("recipe", "schema", 0),
    ("recipe", "rule", "Decode"),
    ("recipe", "rule", "../decode"),
    ("recipe", "rule", "decode\n"),
    ("recipe", "spec", []),
    ("recipe", "code", "c" * 65),
    ("recipe", "environment", ""),
    ("recipe", "inputs", {}),
    ("recipe", "inputs", [{"role": "x"}]),
    ("recipe", "inputs", [{"role": "", "content": "a" * 64}]),
    ("recipe", "inputs", [{"role": "x", "content": "a" * 64, "path": "/x"}]),
    ("recipe", "inputs", [{"role": "x", "content": "a" * 64}] * 2),
    ("recipe", "key", "K" * 64),
    ("recipe", "draw", -1),
    ("recipe", "draw", "0"),
    *((kind, "more", 1) for kind in KINDS),
]


@pytest.mark.parametrize(("kind", "field", "value"), MUTATIONS)
def test_a_mutated_record_is_refused(records, kind, field, value):
    record = {**deepcopy(records[kind][0]), field: value}
    assert not validator(kind).is_valid(record)


@pytest.mark.parametrize("kind", KINDS)
def test_no_field_may_be_absent(records, kind):
    for field in records[kind][0]:
        record = {key: value for key, value in records[kind][0].items() if key != field}
        assert not validator(kind).is_valid(record), field
