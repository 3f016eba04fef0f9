"""The store: hits, misses, draws, damage, kills and full disks; nothing is lost and nothing is half-written."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from draftledger.errors import CorruptError
from draftledger.provenance.digest import file_digest
from draftledger.provenance.manifest import manifest_path, read_manifest, verified
from draftledger.provenance.recipe import Input, Recipe, read_recipe, recipe_path
from draftledger.provenance.scratch import scratch_folder
from draftledger.provenance.store import Stage, Store, stage

SCRIPTS = Path(__file__).resolve().parents[2] / "workflow_scripts"


class Bench:
    """A results folder with a store, and a stage that writes one or two files and counts its computations."""

    def __init__(self, root: Path, *, store: Path | None = None):
        self.root, self.store, self.computed = root, Store(store or root / "store"), 0

    def run(self, text="payload", *, nature="repeatable", spec=1, inputs=(), name="a.txt", refresh=False, fail=False):
        outputs = (self.root / name, self.root / f"second-{name}")
        recipe = Recipe("rule", {"spec": spec}, "code", None, tuple(Input(*item) for item in inputs))

        def compute(folder: Path, partial: Path) -> None:
            self.computed += 1
            self.found = sorted(path.name for path in partial.iterdir())
            (partial / "checkpoint").write_text("half")
            if fail:
                raise ValueError("stopped")
            for output in outputs:
                (folder / output.name).write_text(f"{text} of {output.name}")

        return stage(Stage(recipe, outputs, nature), compute, store=self.store, refresh=refresh)

    def text(self, name="a.txt") -> str:
        verified(self.root / name)
        return (self.root / name).read_text()

    def blob(self, name="a.txt") -> Path:
        return self.store.blob(read_manifest(self.root / name).sha256)

    def leftovers(self) -> list[Path]:
        """Return scratch folders, temporary files and unfinished jobs."""
        scratch = [*(self.store.root / "scratch").glob("*"), *(self.store.root / "partial").glob("*")]
        return scratch + list(self.root.rglob("*.tmp"))


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def damage(path: Path) -> None:
    """Flip one bit without changing size or time stamp."""
    seen, data = path.stat(), path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


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
def test_a_damaged_blob_of_a_draw_comes_back_from_its_placed_copy(bench, how):
    bench.run(nature="draw")
    how(bench.blob())
    assert bench.run(nature="draw").hit
    assert bench.computed == 1
    assert file_digest(bench.blob()) == bench.blob().name


def test_a_draw_with_both_copies_damaged_says_so_and_can_be_drawn_anew(bench):
    bench.run("draw 0", nature="draw")
    damage(bench.blob())
    damage(bench.root / "a.txt")
    with pytest.raises(CorruptError, match="both damaged.*DRAFTLEDGER_STORE=refresh"):
        bench.run("draw 1", nature="draw")
    assert bench.computed == 1
    assert bench.run("draw 1", nature="draw", refresh=True).draw == 1
    assert bench.text() == "draw 1 of a.txt"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"draws": [[{}]]}', '{"draws": 3}', "null", '{"draws": [[]]}'])
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
    bench.store.place(bench.blob().name, bench.root / "again.txt", copy=False)
    assert not same_file(bench.root / "again.txt", bench.blob())
    assert (bench.root / "again.txt").read_text() == "payload of a.txt"


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


# --- failures --------------------------------------------------------------------------------------------------------


def test_a_failed_computation_keeps_its_checkpoints_and_publishes_nothing(bench):
    with pytest.raises(ValueError, match="stopped"):
        bench.run(fail=True)
    assert not (bench.root / "a.txt").exists()
    assert not (bench.store.root / "actions").exists()
    assert bench.found == []
    bench.run()
    assert bench.found == ["checkpoint"]
    assert bench.leftovers() == []


def test_checkpoints_of_another_recipe_are_not_seen(bench):
    with pytest.raises(ValueError, match="stopped"):
        bench.run(fail=True)
    bench.run(spec=2)
    assert bench.found == []


def test_an_output_that_was_not_written_is_a_fault(bench):
    output = bench.root / "a.txt"
    with pytest.raises(CorruptError, match=r"did not write a\.txt"):
        stage(Stage(Recipe("rule", {}, "c", None, ()), (output,)), lambda folder, partial: None, store=bench.store)
    assert not manifest_path(output).exists()


def child(code: str, *arguments: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


HOLD = """
    import sys, time
    from pathlib import Path
    from draftledger.provenance.scratch import scratch_folder
    with scratch_folder(Path(sys.argv[1])) as folder:
        (folder / "half").write_text("x")
        print("ready", flush=True)
        time.sleep(60)
"""


def test_scratch_of_a_killed_process_is_swept_and_that_of_a_living_one_is_not(tmp_path):
    with child(HOLD, tmp_path) as killed, child(HOLD, tmp_path) as living:
        try:
            for process in (killed, living):
                assert process.stdout.readline() == "ready\n"
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            assert len(list(tmp_path.iterdir())) == 2
            with scratch_folder(tmp_path):
                assert len(list(tmp_path.iterdir())) == 2  # the living one's and ours
            assert len(list(tmp_path.glob("*/work/half"))) == 1
        finally:
            living.kill()


FULL = """
    import resource, sys
    from pathlib import Path
    from draftledger.provenance.job import run_job
    root, limit = Path(sys.argv[1]), int(sys.argv[2])
    def compute(job):
        job.out("a.txt").write_text("x" * 1000)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        job.out("b.bin").write_bytes(bytes(1_000_000))
    sys.exit(run_job(compute, nature=sys.argv[3], argv=[
        "--root", str(root), "--store", str(root / "store"), "--spec", "{}", "--code", "c", "--input", "fill.py",
        "--output", str(root / "a.txt"), str(root / "b.bin")]))
"""


@pytest.mark.parametrize(
    ("limit", "nature"), [(500_000, "repeatable"), (500_000, "draw"), (1_000_500, "draw"), (100, "draw")]
)
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(tmp_path, limit, nature):
    """RLIMIT_FSIZE stands for the full disk: the payload, or only a later file, does not fit."""
    with child(FULL, tmp_path, Path(str(limit)), Path(nature)) as process:
        _, told = process.communicate(timeout=60)
    if limit > 1_000_000:
        assert process.returncode == 0
        return
    assert process.returncode == 1
    assert told.count("\n") == 1
    assert told.startswith("draftledger: error: ")
    assert told.endswith("free space or fix access\n")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert not (tmp_path / "store" / "actions").exists()
    assert list((tmp_path / "store" / "scratch").iterdir()) == []


def test_a_disk_that_fills_while_placing_leaves_no_manifest(bench):
    """The placed copy of a draw does not fit: its old manifest is gone, the store has the draw."""
    bench.run(nature="draw")
    shutil.rmtree(bench.root / "store" / "scratch", ignore_errors=True)
    (bench.root / "a.txt").unlink()
    (bench.root / "a.txt").mkdir()  # a path that cannot be replaced
    with pytest.raises(OSError, match="directory"):
        bench.run(nature="draw")
    assert not manifest_path(bench.root / "a.txt").exists()
    assert json.loads(next((bench.store.root / "actions").iterdir()).read_text())["draws"]
    assert bench.leftovers() == []
    (bench.root / "a.txt").rmdir()
    assert bench.run(nature="draw").hit
