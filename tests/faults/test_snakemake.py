"""Faults that strike Snakemake: two at once, killed alone or with its jobs, interrupted, a killed job, a full disk.

A job is held still by taking the lock of its recipe in the store, so that nothing here depends on how fast it is.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onejob import Site
from smalldisk import leave, small_disk
from workspace import Workspace

ALL = os.environ.get("DRAFTLEDGER_FAULTS") == "all"
ADAPTER = "adapters/block_lora/seed1-launch0/adapter.safetensors"
TARGET = f"results/nano/{ADAPTER}.manifest.json"
PATIENCE = 60  # seconds


@pytest.fixture
def untrained(work, calls) -> Site:
    """Return the site of a run that lacks one draw, in results and store."""
    site = Site(work.folder, calls[ADAPTER])
    site.forget()
    for output in site.outputs:
        output.unlink()
        output.with_name(f"{output.name}.manifest.json").unlink()
    return site


@contextmanager
def held(site: Site) -> Iterator[Callable[[], None]]:
    """Hold the lock that the site's job needs, as another job of its recipe would; yield how to let go."""
    path = site.store / "scratch" / f"{site.action().stem}.lock"
    with open(path, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def release() -> None:
            path.unlink(missing_ok=True)
            fcntl.flock(lock, fcntl.LOCK_UN)

        yield release
        release()


@contextmanager
def background(work: Workspace, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start Snakemake in a process group of its own and go on when its job waits for the lock."""
    log = work.folder / "background.log"
    with open(log, "w") as out:
        process = subprocess.Popen(
            work.command("-j1", *arguments),
            cwd=work.folder,
            stdout=out,
            stderr=out,
            text=True,
            process_group=0,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        until(lambda: "waiting for it" in log.read_text(), log)
        yield process
    finally:
        for pid in [process.pid, *jobs(work)]:
            end(pid)
        process.wait()


def until(done: Callable[[], bool], log: Path) -> None:
    """Wait for something to come about."""
    start = time.monotonic()
    while not done():
        assert time.monotonic() - start < PATIENCE, log.read_text()
        time.sleep(0.05)


def end(pid: int) -> None:
    """Kill a process that may be gone."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def jobs(work: Workspace) -> list[int]:
    """Return the processes of the workspace's jobs, orphans too."""
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if _is_job(folder, work.folder)]


def _is_job(process: Path, home: Path) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        return words[1:2] == [b"workflow_scripts/adapter.py"] and Path(os.readlink(process / "cwd")) == home
    except OSError:
        return False  # gone, or another user's


def ended_the_same(site: Site, finished: Workspace) -> bool:
    """Check that what there is now is what an undisturbed run gives."""
    assert site.digests() == Site(finished.folder, site.call).digests()
    assert site.draws() == 1
    assert [*site.leftovers(), *site.faults()] == []
    return True


def test_of_two_snakemakes_the_second_is_told_that_the_folder_is_locked(work, untrained, finished):
    with held(untrained) as release, background(work, TARGET) as first:
        assert "LockException" in work.run("-j1", TARGET, check=False)
        release()
        assert first.wait(PATIENCE) == 0
    assert ended_the_same(untrained, finished)


def test_the_orphan_of_a_killed_snakemake_and_the_next_run_share_one_draw(work, untrained, finished):
    with held(untrained) as release, background(work, TARGET) as killed:
        orphans = jobs(work)
        end(killed.pid)
        killed.wait()
        assert jobs(work) == orphans != []
        assert "LockException" in work.run("-j1", TARGET, check=False)
        work.run("--unlock")
        with background(work, TARGET) as again:
            release()
            assert again.wait(PATIENCE) == 0
            until(lambda: jobs(work) == [], work.folder / "background.log")
    assert ended_the_same(untrained, finished)


@pytest.mark.skipif(not ALL, reason="part of the whole matrix: make test-faults")
def test_after_snakemake_and_its_job_were_killed_the_next_run_ends_the_same(work, untrained, finished):
    with held(untrained), background(work, TARGET) as killed:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        assert "LockException" in work.run("-j1", TARGET, check=False)
        work.run("--unlock")
    assert untrained.faults() == []
    work.run("-j1", TARGET)
    assert ended_the_same(untrained, finished)


@pytest.mark.skipif(not ALL, reason="part of the whole matrix: make test-faults")
def test_after_an_interrupt_from_the_keyboard_the_next_run_goes_on_at_once(work, untrained, finished):
    with held(untrained), background(work, TARGET) as interrupted:
        os.killpg(interrupted.pid, signal.SIGINT)
        assert interrupted.wait(PATIENCE) != 0
        until(lambda: jobs(work) == [], work.folder / "background.log")
    assert untrained.faults() == []
    work.run("-j1", TARGET)
    assert ended_the_same(untrained, finished)


@pytest.mark.skipif(not ALL, reason="part of the whole matrix: make test-faults")
def test_after_one_job_was_killed_snakemake_says_so_and_the_next_run_ends_the_same(work, untrained, finished):
    with held(untrained), background(work, TARGET) as failed:
        for pid in jobs(work):
            end(pid)
        assert failed.wait(PATIENCE) == 1
    assert untrained.faults() == []
    assert not untrained.outputs[0].exists()
    work.run("-j1", TARGET)
    assert ended_the_same(untrained, finished)


@pytest.mark.skipif(not ALL, reason="part of the whole matrix: make test-faults")
def test_a_workflow_on_a_full_disk_fails_and_ends_the_same_once_there_is_room(work, untrained, finished, tmp_path):
    results = work.folder / "results"
    with small_disk(tmp_path / "disk") as disk:
        shutil.copytree(results, disk, dirs_exist_ok=True)
        shutil.rmtree(results)
        results.symlink_to(disk)
        leave(disk, 3)
        told = work.run("-j1", TARGET, check=False)
        assert "free space or fix access" in told
        assert untrained.faults() == []
        leave(disk, 4096)
        work.run("-j1", TARGET)
        assert ended_the_same(untrained, finished)
