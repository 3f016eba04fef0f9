"""Failed stages, killed processes and full disks: nothing is lost and nothing is half-written."""

import json
import os
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from draftledger.errors import CorruptError
from draftledger.provenance.manifest import manifest_path
from draftledger.provenance.recipe import Recipe
from draftledger.provenance.scratch import scratch_folder
from draftledger.provenance.stage import Stage, stage
from store_bench import Bench

SCRIPTS = Path(__file__).resolve().parents[2] / "workflow_scripts"


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


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
    with scratch_folder(Path(sys.argv[1]), sys.argv[2]) as folder:
        (folder / "half").write_text("x")
        print("ready", flush=True)
        time.sleep(60)
"""


def test_scratch_of_a_killed_process_is_swept_and_that_of_a_living_one_is_not(tmp_path):
    with child(HOLD, tmp_path, Path("killed")) as killed, child(HOLD, tmp_path, Path("living")) as living:
        try:
            for process in (killed, living):
                assert process.stdout.readline() == "ready\n"
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            names = {"living", "living.lock", "ours", "ours.lock"}
            with scratch_folder(tmp_path, "ours"):
                assert {path.name for path in tmp_path.iterdir()} == names
            assert [path.parent.name for path in tmp_path.rglob("half")] == ["living"]
        finally:
            living.kill()


def test_who_asks_for_scratch_in_use_says_so_waits_and_finds_it_empty(tmp_path):
    with child(HOLD, tmp_path, Path("same")) as first, child(HOLD, tmp_path, Path("same")) as second:
        try:
            told = {process: process.stdout for process in (first, second)}
            ready, _, _ = select.select(list(told.values()), [], [], 60)
            holder, waiter = (first, second) if ready == [first.stdout] else (second, first)
            assert "another process is at the same work; waiting" in waiter.stderr.readline()
            holder.send_signal(signal.SIGKILL)
            assert waiter.stdout.readline() == "ready\n"
        finally:
            first.kill()
            second.kill()
    with scratch_folder(tmp_path, "same") as folder:
        assert list(folder.iterdir()) == []
    assert list(tmp_path.iterdir()) == []


def test_checkpoints_of_one_draw_are_not_the_next_draws(bench):
    bench.run(nature="draw")
    with pytest.raises(ValueError, match="stopped"):
        bench.run(nature="draw", refresh=True, fail=True)
    assert bench.found == []
    assert bench.run(nature="draw").hit  # and the broken draw keeps its checkpoints
    assert bench.run(nature="draw", refresh=True).draw == 1
    assert bench.found == ["checkpoint"]
    assert bench.leftovers() == []


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


@pytest.mark.parametrize(("limit", "nature"), [(500_000, "repeatable"), (500_000, "draw"), (100, "draw")])
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(tmp_path, limit, nature):
    """RLIMIT_FSIZE stands for the full disk."""
    with child(FULL, tmp_path, Path(str(limit)), Path(nature)) as process:
        _, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert told.count("\n") == 1
    assert told.startswith("draftledger: error: ")
    assert told.endswith("free space or fix access\n")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert not (tmp_path / "store" / "actions").exists()
    assert list((tmp_path / "store" / "scratch").iterdir()) == []


def test_a_payload_that_cannot_be_placed_leaves_no_manifest_and_stays_in_the_store(bench):
    bench.run(nature="draw")
    (bench.root / "a.txt").unlink()
    (bench.root / "a.txt").mkdir()  # a path that cannot be replaced
    with pytest.raises(OSError, match="directory"):
        bench.run(nature="draw")
    assert not manifest_path(bench.root / "a.txt").exists()
    assert json.loads(next((bench.store.root / "actions").iterdir()).read_text())["draws"]
    assert bench.leftovers() == []
    (bench.root / "a.txt").rmdir()
    assert bench.run(nature="draw").hit
