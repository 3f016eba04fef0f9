"""Faults that strike one job: a full disk, a store elsewhere, a damaged draw, and another job with the same recipe.

`DRAFTLEDGER_FAULTS=all` fills the disk at every level and for jobs of every nature; without it at a few.
"""

import os
import resource
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onejob import Site
from smalldisk import leave, small_disk

ALL = os.environ.get("DRAFTLEDGER_FAULTS") == "all"
ADAPTER = "adapters/block_lora/seed1-launch0/adapter.safetensors"
JOBS = {"repeatable": "windows/train.parquet", "draw": ADAPTER, "probe": "SHA256SUMS"}


# --- a full disk -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nature", JOBS if ALL else ["repeatable", "draw"])
def test_a_job_on_a_full_disk_says_so_and_ends_the_same_once_there_is_room(sites, finished, tmp_path, nature):
    """With every number of free pages, from none to the first that is enough; how many it is depends on the kernel."""
    struck = 0
    for pages in range(64) if ALL else (2, 9):
        with small_disk(tmp_path / f"disk{pages}") as disk:
            site = sites(JOBS[nature], folder=disk)
            site.forget()
            leave(disk, pages)
            full = told_and_mended(site, finished, site.run(), lambda disk=disk: leave(disk, 4096))
        struck += full
        if ALL and not full:
            break
    assert struck >= (3 if ALL else 1)


def told_and_mended(site: Site, finished, done, make_room: Callable[[], None]) -> bool:
    """Check what a job said and left when the disk was full, and the next run; return whether it was full at all."""
    if done.returncode:
        told = [line for line in done.stderr.splitlines() if line.startswith("draftledger: error:")]
        assert len(told) == 1, done.stderr[-2000:]
        assert "free space or fix access" in told[0]
        assert "Traceback" not in done.stderr
        assert site.faults() == []
    make_room()
    again = site.run()
    assert again.returncode == 0, again.stderr[-2000:]
    assert site.digests() == Site(finished.folder, site.call).digests()
    assert [*site.leftovers(), *site.faults()] == []
    return done.returncode != 0


@pytest.mark.parametrize("nature", JOBS if ALL else ["repeatable"])
def test_a_file_that_may_not_grow_is_a_full_disk_too(sites, finished, nature):
    sizes = sorted(path.stat().st_size for path in Site(finished.folder, sites(JOBS[nature]).call).outputs)
    struck = 0
    for limit in (0, 100, sizes[0] - 1, sizes[-1] - 1) if ALL else (sizes[-1] - 1,):
        site = sites(JOBS[nature])
        site.forget()
        done = site.run(limit=lambda limit=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        struck += told_and_mended(site, finished, done, lambda: None)
    assert struck > 0


# --- a store on another file system ----------------------------------------------------------------------------------


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs a second file system at /dev/shm")
@pytest.mark.parametrize("nature", JOBS if ALL else ["draw"])
def test_a_store_on_another_file_system_gives_the_same(sites, finished, nature):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        site = sites(JOBS[nature], store=Path(other))
        assert site.store.stat().st_dev != site.results.stat().st_dev
        site.forget()
        for word in ("computed", "computed" if nature == "probe" else "store hit"):
            site.outdate()
            assert word in site.run().stderr
            assert site.digests() == Site(finished.folder, site.call).digests()
            assert [*site.leftovers(), *site.faults()] == []


# --- a damaged draw --------------------------------------------------------------------------------------------------


def damage(path: Path) -> None:
    """Flip one bit, through every link."""
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


@pytest.mark.parametrize("which", [0, 1], ids=["blob", "second copy"])
def test_a_damaged_draw_is_mended_from_its_second_copy(sites, finished, which):
    site = sites(ADAPTER)
    damage(site.copies()[which])
    for output in site.outputs:  # as Snakemake does before it runs a job
        output.unlink()
    assert "store hit" in site.run().stderr
    assert site.digests() == Site(finished.folder, site.call).digests()
    assert [*site.leftovers(), *site.faults()] == []


def test_a_draw_without_a_whole_copy_is_refused_and_can_be_drawn_anew(sites):
    site = sites(ADAPTER)
    for copy in (*site.copies(), site.outputs[0]):
        damage(copy)
    done = site.run()
    assert done.returncode == 1
    told = [line for line in done.stderr.splitlines() if line.startswith("draftledger: error:")]
    assert len(told) == 1
    assert "both damaged; a draw cannot be made again: run with DRAFTLEDGER_STORE=refresh" in told[0]
    assert "computed in" in site.run(DRAFTLEDGER_STORE="refresh").stderr
    assert site.draws() == 2
    assert [*site.leftovers(), *site.faults()] == []


# --- two jobs of the same recipe -------------------------------------------------------------------------------------


def test_of_two_jobs_with_one_recipe_one_computes_and_the_other_waits_for_it(sites, finished, tmp_path):
    """As after a killed Snakemake: its orphan goes on while the job is run again."""
    first = sites(ADAPTER, store=tmp_path / "shared")
    first.forget()
    second = Site(tmp_path / "second", first.call)
    shutil.copytree(first.folder, second.folder, symlinks=True)
    with ThreadPoolExecutor(2) as workers:
        done = list(workers.map(Site.run, (first, second)))
    assert [item.returncode for item in done] == [0, 0]
    assert sorted("store hit" in item.stderr for item in done) == [False, True]
    assert first.draws() == 1
    for site in (first, second):
        assert site.digests() == Site(finished.folder, site.call).digests()
        assert [*site.leftovers(), *site.faults()] == []
