"""A finished run becomes a release that a stranger can check; its records keep to the published schemas."""

import json

from jsonschema import Draft202012Validator

from draftledger.provenance.archive import verify_archive
from workspace import ROOT

SETTINGS = {"version": "1.0", "level": "full", "allow_dirty": True}


def test_a_finished_run_is_released(work):
    work.configure("release", SETTINGS)
    work.run("-j1", "--", "release")
    record = json.loads((work.results / "release" / "1.0.json").read_text())
    archive = work.results / "release" / record["archive"]
    found = verify_archive(archive, expect=record["root_digest"])
    assert {finding.state for finding in found} == {"ok"}
    assert record["dirty"] == ["not under version control"]
    assert "ok" in work.tool("verify", str(archive))
    assert work.planned("--", "release") == set()
    assert work.planned() == set()  # a release is nothing that results depend on


def test_without_leave_a_dirty_checkout_is_not_released(work):
    told = work.run("-j1", "--", "release", check=False)
    assert "draftledger: error: release: the checkout is dirty (not under version control); commit, or set" in told
    assert not list(work.results.glob("release/*.tar"))


def test_every_record_of_a_run_keeps_to_its_schema(finished):
    for kind in ("manifest", "recipe"):
        schema = json.loads((ROOT / "docs" / "schemas" / f"{kind}.schema.json").read_text())
        records = [json.loads(path.read_text()) for path in finished.results.rglob(f"*.{kind}.json")]
        assert len(records) > 40
        assert [error.message for each in records for error in Draft202012Validator(schema).iter_errors(each)] == []
