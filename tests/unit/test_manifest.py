"""A manifest is a pure function of its payload, and whatever differs from it is refused."""

import json
import os

import pyarrow as pa
import pytest

from draftledger.errors import CorruptError
from draftledger.provenance.manifest import describe, manifest_path, read_manifest, verified, write_manifest
from draftledger.provenance.recipe import Input, Recipe, read_recipe, recipe_path, recipe_record
from draftledger.provenance.tables import with_counts, write_table


@pytest.fixture
def payload(tmp_path):
    path = tmp_path / "rows.parquet"
    write_table(with_counts(pa.table({"x": [1, 2, 3]}), {"read": 5, "kept": 3, "dropped": 2}), path)
    write_manifest(path, describe(path))
    return path


def test_a_manifest_says_name_kind_size_digests_and_counts(payload):
    manifest = read_manifest(payload)
    assert (manifest.name, manifest.kind, manifest.bytes) == ("rows.parquet", "parquet", payload.stat().st_size)
    assert manifest.counts == {"rows": 3, "read": 5, "kept": 3, "dropped": 2}
    assert len(manifest.sha256) == len(manifest.content) == 64


def test_equal_bytes_give_an_equal_manifest_at_any_time_and_place(payload, tmp_path):
    other = tmp_path / "elsewhere" / payload.name
    other.parent.mkdir()
    other.write_bytes(payload.read_bytes())
    os.utime(other, (0, 0))
    write_manifest(other, describe(other))
    assert manifest_path(other).read_bytes() == manifest_path(payload).read_bytes()


def test_a_payload_that_matches_is_verified(payload):
    assert verified(payload) == describe(payload)


@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "remove"])
def test_a_payload_that_differs_is_refused(payload, damage):
    data = payload.read_bytes()
    flipped = data[:10] + bytes([data[10] ^ 1]) + data[11:]
    payload.write_bytes({"flip": flipped, "cut": data[:-1], "grow": data + b"\0", "remove": b""}[damage])
    if damage == "remove":
        payload.unlink()
    with pytest.raises(CorruptError, match=r"rows\.parquet.*again"):
        verified(payload)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"schema": 1}', "[" * 100_000, '{"schema": 1, "unknown": 2}', "\x00"]
)
def test_an_unreadable_manifest_is_one_line(payload, text):
    manifest_path(payload).write_text(text)
    with pytest.raises(CorruptError, match="again") as caught:
        read_manifest(payload)
    assert "\n" not in str(caught.value)


def test_a_manifest_of_a_newer_schema_is_refused(payload):
    fields = json.loads(manifest_path(payload).read_text())
    manifest_path(payload).write_text(json.dumps(fields | {"schema": 2}))
    with pytest.raises(CorruptError, match="schema 2 is not 1; use the release"):
        read_manifest(payload)


def test_an_absent_manifest_is_refused(payload):
    manifest_path(payload).unlink()
    with pytest.raises(CorruptError, match="absent"):
        read_manifest(payload)


# --- recipes ---------------------------------------------------------------------------------------------------------

RECIPE = Recipe("decode", {"k": 3}, "c" * 64, "e" * 64, (Input("model/config.json", "a" * 64),))


def written(payload, fields):
    recipe_path(payload).write_text(json.dumps(fields))
    return payload


def test_a_recipe_is_read_back_with_its_draw(payload):
    assert read_recipe(written(payload, recipe_record(RECIPE, draw=2))) == (RECIPE, 2)


@pytest.mark.parametrize(
    ("field", "value"),
    [("rule", "timing"), ("spec", {"k": 4}), ("code", "d" * 64), ("environment", None), ("inputs", [])],
)
def test_every_field_of_a_recipe_decides_its_key(payload, field, value):
    with pytest.raises(CorruptError, match="does not give its own key"):
        read_recipe(written(payload, recipe_record(RECIPE, draw=0) | {field: value}))


@pytest.mark.parametrize("fields", [[], {}, {"inputs": 3}, {"inputs": [{"role": "x"}]}, None], ids=str)
def test_an_unreadable_recipe_is_refused(payload, fields):
    with pytest.raises(CorruptError, match="again"):
        read_recipe(written(payload, fields))
