"""The store: hits, misses, draws and damage; a payload is its manifest's bytes or is refused."""

import os
import tempfile
from pathlib import Path

import pytest

from draftledger.errors import CorruptError
from draftledger.provenance.digest import file_digest
from draftledger.provenance.manifest import manifest_path
from draftledger.provenance.recipe import read_recipe, recipe_path
from store_bench import Bench, damage


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


# --- hits and misses -------------------------------------------------------------------------------------------------


def test_a_miss_computes_and_writes_payload_manifest_and_recipe(bench):
    outcome = bench.run()
    assert (outcome.hit, outcome.draw, bench.computed) == (False, 0, 1)
    assert bench.text() == "payload of a.txt"
    assert read_recipe(bench.root / "second-a.txt")[0].spec == {"spec": 1}
    assert bench.leftovers() == []


def test_the_same_recipe_is_a_hit_and_another_is_not(bench):
    bench.run()
    assert bench.run("other").hit
    assert bench.text() == "payload of a.txt"
    assert not bench.run("other", spec=2).hit
    assert bench.text() == "other of a.txt"
    assert bench.run(spec=1).hit
    assert bench.text() == "payload of a.txt"
    assert bench.computed == 2


def test_equal_content_of_an_input_cuts_the_cascade(bench):
    first = bench.run(spec="up")
    bench.run(spec="down", name="b.txt", inputs=[("up", first.manifests[0].content)])
    again = bench.run(spec="up, otherwise made")
    assert not again.hit
    assert bench.run(spec="down", name="b.txt", inputs=[("up", again.manifests[0].content)]).hit


def test_a_recipe_does_not_depend_on_the_order_of_settings_but_on_inputs(bench):
    bench.run(spec={"x": 1, "y": 2})
    assert bench.run(spec={"y": 2, "x": 1}).hit
    assert not bench.run(spec={"x": 1, "y": 2}, inputs=[("role", "content")]).hit


@pytest.mark.parametrize("nature", ["repeatable", "draw"])
def test_deleted_files_are_restored_without_computing(bench, nature):
    bench.run(nature=nature)
    for path in (bench.root / "a.txt", manifest_path(bench.root / "second-a.txt"), recipe_path(bench.root / "a.txt")):
        path.unlink()
        assert bench.run(nature=nature).hit
        assert bench.text() == "payload of a.txt"
    assert bench.computed == 1


def test_the_store_alone_rebuilds_a_clone(bench, tmp_path):
    bench.run(nature="draw")
    clone = Bench(tmp_path / "clone", store=bench.store.root)
    assert clone.run(nature="draw").hit
    assert clone.text() == bench.text()
    assert clone.computed == 0


def test_a_probe_always_looks_anew(bench):
    bench.run("first", nature="probe")
    assert not bench.run("second", nature="probe").hit
    assert bench.text() == "second of a.txt"


# --- draws and refresh -----------------------------------------------------------------------------------------------


def test_every_draw_is_kept_and_numbered(bench):
    bench.run("draw 0", nature="draw")
    first = bench.blob()
    outcome = bench.run("draw 1", nature="draw", refresh=True)
    assert (outcome.hit, outcome.draw) == (False, 1)
    assert read_recipe(bench.root / "a.txt")[1] == 1
    assert first.read_text() == "draw 0 of a.txt"
    assert bench.run("never", nature="draw").draw == 1
    assert bench.text() == "draw 1 of a.txt"


def test_refresh_of_a_repeatable_stage_computes_and_compares(bench):
    bench.run()
    assert not bench.run(refresh=True).hit
    assert bench.computed == 2
    assert bench.run().draw == 0


def test_a_repeatable_stage_that_differs_raises_and_loses_nothing(bench):
    bench.run("first")
    action = next((bench.store.root / "actions").iterdir()).read_bytes()
    with pytest.raises(CorruptError, match="must repeat; check memory and disk") as caught:
        bench.run("second", refresh=True)
    assert "\n" not in str(caught.value)
    assert bench.text() == "first of a.txt"
    assert next((bench.store.root / "actions").iterdir()).read_bytes() == action
    assert bench.run().hit


# --- damage ----------------------------------------------------------------------------------------------------------


def test_a_damaged_blob_of_a_repeatable_stage_is_computed_again(bench):
    bench.run()
    damage(bench.blob())
    assert not bench.run().hit
    assert bench.text() == "payload of a.txt"
    assert file_digest(bench.blob()) == bench.blob().name


def test_a_damaged_payload_is_placed_anew_from_a_whole_blob(bench):
    bench.run(nature="draw")
    damage(bench.root / "a.txt")
    assert bench.run(nature="draw").hit
    assert bench.text() == "payload of a.txt"


@pytest.mark.parametrize("how", [damage, Path.unlink])
@pytest.mark.parametrize("which", ["blob", "spare"])
def test_a_damaged_copy_of_a_draw_comes_back_from_the_other(bench, which, how):
    """Snakemake deletes outputs before it runs their job again, so the placed file cannot be what is left."""
    bench.run(nature="draw")
    sha256 = bench.blob().name
    copy = getattr(bench.store, which)(sha256)
    how(copy)
    (bench.root / "a.txt").unlink()
    assert bench.run(nature="draw").hit
    assert bench.computed == 1
    assert bench.text() == "payload of a.txt"
    assert file_digest(copy) == sha256
    assert not same_file(bench.store.blob(sha256), bench.store.spare(sha256))


def test_a_lost_blob_comes_back_from_the_placed_file(bench):
    bench.run()
    bench.blob().unlink()
    assert bench.run().hit
    assert file_digest(bench.blob()) == bench.blob().name


def test_a_draw_with_both_copies_damaged_says_so_and_can_be_drawn_anew(bench):
    bench.run("draw 0", nature="draw")
    damage(bench.blob())
    damage(bench.root / "a.txt")
    with pytest.raises(CorruptError, match=r"both damaged.*DRAFTLEDGER_STORE=refresh"):
        bench.run("draw 1", nature="draw")
    assert bench.computed == 1
    assert bench.run("draw 1", nature="draw", refresh=True).draw == 1
    assert bench.text() == "draw 1 of a.txt"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"draws": [[{}]]}', '{"draws": 3}', "null"])
def test_a_damaged_index_is_one_line(bench, text):
    bench.run()
    next((bench.store.root / "actions").iterdir()).write_text(text)
    with pytest.raises(CorruptError, match="delete it and run again") as caught:
        bench.run()
    assert "\n" not in str(caught.value)


# --- how a payload is placed -----------------------------------------------------------------------------------------


def same_file(one: Path, other: Path) -> bool:
    return one.stat().st_ino == other.stat().st_ino and one.stat().st_dev == other.stat().st_dev


def test_repeatable_payloads_are_links_and_draws_are_copies(bench):
    bench.run()
    assert same_file(bench.root / "a.txt", bench.blob())
    assert bench.run().hit
    assert same_file(bench.root / "a.txt", bench.blob())
    bench.run("drawn", nature="draw", spec=2, name="b.txt")
    assert not same_file(bench.root / "b.txt", bench.blob("b.txt"))


def test_a_blob_that_is_linked_elsewhere_is_copied_and_keeps_that_time_stamp(bench):
    bench.run(spec=1)
    os.utime(bench.root / "a.txt", (1, 1))
    bench.root = bench.root / "other"
    bench.run(spec=2)  # another action with the same bytes: put() replaces the blob
    bench.run(spec=2)
    elsewhere = bench.root.parent / "a.txt"
    assert elsewhere.stat().st_mtime == 1
    assert (bench.root / "a.txt").stat().st_mtime > 1


def test_placing_a_linked_blob_again_makes_a_copy(bench):
    bench.run()
    bench.store.place(bench.blob().name, bench.root / "again.txt", twice=False)
    assert not same_file(bench.root / "again.txt", bench.blob())
    assert (bench.root / "again.txt").read_text() == "payload of a.txt"


def test_the_placed_file_stays_until_the_new_one_is_whole(bench):
    bench.run()
    with pytest.raises(FileNotFoundError):
        bench.store.place("0" * 64, bench.root / "a.txt", twice=False)
    assert bench.text() == "payload of a.txt"
    assert bench.leftovers() == []


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs a second file system at /dev/shm")
@pytest.mark.parametrize("nature", ["repeatable", "draw"])
def test_a_store_on_another_file_system_is_copied_from(tmp_path, nature):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        if Path(other).stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("/dev/shm is on the same file system")
        bench = Bench(tmp_path, store=Path(other) / "store")
        bench.run(nature=nature)
        assert bench.run(nature=nature).hit
        assert bench.text() == "payload of a.txt"
        assert not same_file(bench.root / "a.txt", bench.blob())


@pytest.mark.parametrize("nature", ["repeatable", "draw"])
def test_payloads_and_blobs_can_be_written_by_their_owner(bench, nature):
    """Snakemake calls a read-only output protected and refuses every re-run."""
    bench.run(nature=nature)
    bench.run(nature=nature)
    for path in (bench.root / "a.txt", bench.blob()):
        assert path.stat().st_mode & 0o777 == 0o644


def test_the_manifest_is_written_last(bench):
    bench.run()
    payload = bench.root / "a.txt"
    assert payload.stat().st_mtime_ns <= recipe_path(payload).stat().st_mtime_ns
    assert recipe_path(payload).stat().st_mtime_ns <= manifest_path(payload).stat().st_mtime_ns
