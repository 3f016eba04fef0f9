"""Every state of an artefact is found and told apart, and only faults count as such."""

import json
import shutil

import pytest

from draftledger.errors import CorruptError
from draftledger.provenance.digest import content_digest, file_digest
from draftledger.provenance.ledger import parse_sums
from draftledger.provenance.manifest import Manifest, describe, manifest_path, write_manifest
from draftledger.provenance.recipe import recipe_path
from draftledger.provenance.stage import Stage, stage
from draftledger.provenance.store import Store
from draftledger.provenance.store_check import verify_store
from draftledger.provenance.verify import verify
from forge import Home

PROMPTS = "config/prompts/p.jsonl"


@pytest.fixture
def base(tmp_path):
    """Return the working folder, with a prompt file in it."""
    (tmp_path / PROMPTS).parent.mkdir(parents=True)
    (tmp_path / PROMPTS).write_text("{}\n")
    return tmp_path


@pytest.fixture
def home(base):
    """Return results of five artefacts in a line, and their ledger."""
    made = Home(base / "results")
    made.add("environment.json", "{}", rule="environment")
    made.add("corpus/documents.txt", rule="corpus", spec={"kind": "synthetic"})
    made.add("adapters/a.txt", rule="adapter", reads=["corpus/documents.txt", "environment.json"])
    outside = {PROMPTS: content_digest(base / PROMPTS)}
    made.add("decode/rounds.txt", reads=["adapters/a.txt", "environment.json"], outside=outside)
    made.add("summary.txt", rule="summary", reads=["decode/rounds.txt"])
    made.ledger()
    return made


def states(home, **options) -> dict[str, str]:
    """Return the state of everything that is not ok, by its path."""
    found = verify(home.folder, base=home.folder.parent, **options)
    return {
        finding.path.removeprefix(f"{home.folder}/"): finding.state
        for finding in found.findings
        if finding.state != "ok"
    }


def without_ledger(home):
    for path in home.folder.glob("SHA256SUMS*"):
        path.unlink()


def test_results_as_written_are_ok(home):
    found = verify(home.folder, base=home.folder.parent)
    assert found.counts == {"ok": 6}
    assert (found.faults, found.unchecked) == ([], ())
    assert found.record() == {"schema": 1, "counts": {"ok": 6}, "findings": [], "unchecked": []}


@pytest.mark.parametrize("suffix", ["", ".manifest.json", ".recipe.json"])
@pytest.mark.parametrize("ledger", [True, False])
def test_a_changed_byte_is_altered_and_nothing_else_is_named(home, suffix, ledger):
    name = f"decode/rounds.txt{suffix}"
    path = home.folder / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    if not ledger:
        without_ledger(home)
    found = states(home)
    # Without the ledger a manifest and its payload accuse each other.
    assert found in ({name: "altered"}, *([{"decode/rounds.txt": "altered"}] if not ledger else []))


def test_the_form_of_a_record_counts(home):
    path = recipe_path(home.folder / "summary.txt")
    path.write_text(json.dumps(json.loads(path.read_text())))
    without_ledger(home)
    assert states(home) == {"summary.txt.recipe.json": "altered"}


def test_a_manifest_that_fits_neither_payload_nor_ledger_is_altered(home):
    payload = home.folder / "decode/rounds.txt"
    real = describe(payload)
    write_manifest(payload, Manifest(real.name, real.kind, real.bytes, real.sha256, "0" * 64, real.counts))
    assert states(home) == {"decode/rounds.txt.manifest.json": "altered"}
    without_ledger(home)
    assert states(home)["decode/rounds.txt"] == "altered"


def test_a_changed_input_makes_stale(home):
    home.add("decode/rounds.txt", "other", reads=["adapters/a.txt"])
    home.ledger()
    assert states(home) == {"summary.txt": "stale"}
    (home.folder.parent / PROMPTS).write_text("[]\n")
    home.add("decode/rounds.txt", reads=["adapters/a.txt"], outside={PROMPTS: "0" * 64})
    assert states(home)["decode/rounds.txt"] == "altered"  # SHA256SUMS has the one before
    without_ledger(home)
    assert states(home) == {"decode/rounds.txt": "stale"}


def test_another_environment_class_makes_stale(home):
    home.add("environment.json", '{"threads": 2}', rule="environment")
    without_ledger(home)
    assert states(home) == {"adapters/a.txt": "stale", "decode/rounds.txt": "stale"}


def test_what_nothing_explains(home):
    without_ledger(home)
    recipe_path(home.folder / "corpus/documents.txt").unlink()
    manifest_path(home.folder / "summary.txt").unlink()
    home.add("decode/other.txt", reads=["decode/rounds.txt"])
    for path in home.folder.glob("decode/rounds.txt*"):
        path.unlink()
    named = {"corpus/documents.txt", "summary.txt", "decode/other.txt"}
    assert states(home) == dict.fromkeys(named, "unexplained")


def test_an_orphan_is_named_and_is_no_fault(home):
    (home.folder / "notes.txt").write_text("mine")
    home.add("decode/removed.txt", reads=["adapters/a.txt"])
    assert states(home) == {"notes.txt": "orphan", "decode/removed.txt": "orphan"}
    assert verify(home.folder, base=home.folder.parent).faults == []


def test_what_is_made_from_the_ledger_is_no_orphan(home):
    home.add("release/r.tar", rule="release", reads=["SHA256SUMS"])
    assert states(home) == {}


def test_a_payload_that_can_be_made_again_is_absent_and_no_fault(home):
    (home.folder / "decode/rounds.txt").unlink()
    assert states(home) == {"decode/rounds.txt": "absent"}
    assert verify(home.folder, base=home.folder.parent).faults == []


def test_a_draw_is_missing_unless_a_release_left_it_out(home):
    (home.folder / "adapters/a.txt").unlink()
    assert states(home) == {"adapters/a.txt": "missing"}
    record = home.folder.parent / "release.json"
    record.write_text('{"left_out": {"results/adapters/a.txt": "its level"}}')
    assert states(home) == {"adapters/a.txt": "absent"}
    record.write_text("{}")
    with pytest.raises(CorruptError, match="unpack the release again"):
        states(home)


@pytest.mark.parametrize("suffix", [".manifest.json", ".recipe.json"])
def test_a_record_that_the_ledger_names_is_missing(home, suffix):
    (home.folder / f"corpus/documents.txt{suffix}").unlink()
    assert states(home) == {f"corpus/documents.txt{suffix}": "missing"}


def test_an_artefact_deleted_with_its_records_is_missed_by_the_ledger(home):
    for path in home.folder.glob("corpus/*"):
        path.unlink()
    assert set(states(home).values()) == {"missing"}


def test_an_input_outside_that_is_not_here_is_said(home):
    (home.folder.parent / PROMPTS).unlink()
    found = verify(home.folder, base=home.folder.parent)
    assert (found.counts, found.unchecked) == ({"ok": 6}, (PROMPTS,))


@pytest.mark.parametrize("change", [b"", b"\xff\xfe", b"0  x\n", b"twice"])
def test_a_damaged_ledger_is_named_once(home, change):
    sums = home.folder / "SHA256SUMS"
    sums.write_bytes(sums.read_bytes() * 2 if change == b"twice" else change)
    assert states(home) == {"SHA256SUMS": "altered"}
    write_manifest(sums, describe(sums))  # and with a manifest that fits
    if change:
        assert states(home) == {"SHA256SUMS": "altered"}


def test_the_root_digest_is_compared(home):
    root = file_digest(home.folder / "SHA256SUMS")
    assert states(home, expect=root) == {}
    assert states(home, expect="0" * 64) == {"SHA256SUMS": "altered"}
    without_ledger(home)
    assert states(home, expect=root)["SHA256SUMS"] == "altered"


def test_every_experiment_below_is_checked_by_itself_and_the_store_is_not(home):
    shutil.copytree(home.folder, home.folder / "other")
    (home.folder / "store" / "blobs" / "aa").mkdir(parents=True)
    (home.folder / "store" / "blobs" / "aa" / "junk").write_text("")
    assert verify(home.folder, base=home.folder.parent).counts == {"ok": 12}
    (home.folder / "other" / "corpus" / "documents.txt").write_text("other")
    assert states(home) == {"other/corpus/documents.txt": "altered"}


def test_no_folder_is_one_line(tmp_path):
    with pytest.raises(CorruptError, match="name the results with --root"):
        verify(tmp_path / "none")


@pytest.mark.parametrize("line", ["", "x", f"{'0' * 63}  a", f"{'A' * 64}  a", f"{'0' * 64} *a", f"{'0' * 64}  "])
def test_only_lines_of_a_digest_and_a_name_are_sums(line):
    assert parse_sums(f"{'0' * 64}  a b\n") == {"a b": "0" * 64}
    with pytest.raises(CorruptError, match="line 2"):
        parse_sums(f"{'0' * 64}  a b\n{line}\n")


# --- the store -------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(home):
    """Return a store with one draw in it."""
    made = Store(home.folder / "store")
    job = Stage(home.recipe("adapter"), (home.folder / "adapters/b.txt",), "draw")
    stage(job, lambda folder, _: (folder / "b.txt").write_text("weights"), store=made)
    return made


def store_states(store) -> list[str]:
    return [finding.state for finding in verify_store(store.root).findings if finding.state != "ok"]


def test_a_whole_store_is_ok(store):
    assert verify_store(store.root).counts == {"ok": 3}


def test_a_damaged_blob_and_a_damaged_index_are_altered(store):
    blob = next(store.root.glob("blobs/*/*"))
    blob.write_text("other")
    assert store_states(store) == ["altered"]
    entry = next(store.root.glob("actions/*"))
    entry.write_text(entry.read_text().replace('"c0"', '"c1"'))
    assert store_states(store) == ["altered", "altered"]


def test_a_draw_without_blobs_is_missing_and_another_stage_absent(store, home):
    for path in store.root.glob("[bs]*/*/*"):
        path.unlink()
    assert store_states(store) == ["missing"]
    job = Stage(home.recipe("corpus"), (home.folder / "corpus/x.txt",))
    stage(job, lambda folder, _: (folder / "x.txt").write_text("documents"), store=store)
    next(store.root.glob("blobs/*/*")).unlink()
    assert sorted(store_states(store)) == ["absent", "missing"]
