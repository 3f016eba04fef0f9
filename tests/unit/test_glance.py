"""A glance tells what is absent or changed by size and time stamp, and touches nothing."""

import os

import pytest

from draftledger.provenance.glance import Glance, Seen, glance
from draftledger.provenance.manifest import describe, manifest_path, read_manifest, write_manifest


@pytest.fixture
def payload(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("x\t1\n")
    write_manifest(path, describe(path))
    return path


def state(payload) -> str:
    return glance([str(payload)]).seen[str(payload)].state


def test_a_payload_as_written_is_ok(payload):
    assert state(payload) == "ok"


def test_a_payload_or_manifest_that_is_not_there_is_absent(payload):
    for path in (manifest_path(payload), payload):
        path.unlink()
        assert state(payload) == "absent"


@pytest.mark.parametrize("change", ["later", "longer", "shorter"])
def test_another_size_or_a_later_time_stamp_is_a_change(payload, change):
    written = manifest_path(payload).stat().st_mtime_ns
    text = payload.read_text()
    payload.write_text({"later": text, "longer": text + "1", "shorter": text[:-1]}[change])
    later = 1_000_000_000 if change == "later" else 0
    os.utime(payload, ns=(written + later, written + later))
    assert state(payload) == "changed"


def test_a_size_that_only_begins_alike_is_a_change(payload):
    payload.write_text("x" * 4)
    manifest = manifest_path(payload)
    manifest.write_text(manifest.read_text().replace('"bytes": 4,', '"bytes": 41,'))
    assert state(payload) == "changed"


def test_a_time_stamp_alone_in_the_past_is_no_change(payload):
    os.utime(payload, (1, 1))
    assert state(payload) == "ok"


def test_nothing_is_written(payload):
    before = {path.name: path.stat().st_mtime_ns for path in payload.parent.iterdir()}
    glance([str(payload), str(payload.parent / "none.tsv")])
    assert {path.name: path.stat().st_mtime_ns for path in payload.parent.iterdir()} == before


def test_the_content_of_what_is_as_written_is_known(payload):
    assert glance([str(payload)]).seen[str(payload)].content == read_manifest(payload).content


@pytest.mark.parametrize("text", ["{", "[]", "{}", "null", "[" * 100_000])
def test_an_unreadable_manifest_is_a_change(payload, text):
    manifest_path(payload).write_text(text)
    assert state(payload) == "changed"


def line(**states) -> str:
    return Glance({path: Seen(state) for path, state in states.items()}).line()


def test_the_line_counts_and_names_the_first_three():
    assert line(a="ok", b="absent") == "ledger: 2 artefacts, 1 absent, 0 changed"
    assert line(a="changed") == "ledger: 1 artefacts, 0 absent, 1 changed since it was written: a"
    four = line(**dict.fromkeys("abcd", "changed"))
    assert four == "ledger: 4 artefacts, 0 absent, 4 changed since they were written: a, b, c …"
