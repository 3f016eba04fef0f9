"""A job killed or interrupted at a write: nothing half-written is taken for whole, and the next run ends the same.

`DRAFTLEDGER_FAULTS=all` stops each job at every one of its write points; without it at two.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onejob import Site

ALL = os.environ.get("DRAFTLEDGER_FAULTS") == "all"
JOBS = {
    "repeatable": "windows/train.parquet",
    "draw": "adapters/block_lora/seed1-launch0/adapter.safetensors",
    "probe": "SHA256SUMS",
}
CASES = [
    ("repeatable", "computed", "same file system"),
    ("draw", "computed", "same file system"),
    ("probe", "computed", "same file system"),
    ("repeatable", "store hit", "same file system"),
    ("draw", "store hit", "same file system"),
    ("repeatable", "store hit", "store elsewhere"),
    ("draw", "store hit", "store elsewhere"),
]


@pytest.fixture
def prepare(sites) -> Iterator[Callable[[str, str, str], Site]]:
    """Return a maker of sites in which a job of that nature is about to compute, or to find itself in the store."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as elsewhere:

        def make(nature: str, state: str, layout: str) -> Site:
            store = Path(tempfile.mkdtemp(dir=elsewhere)) if layout == "store elsewhere" else None
            site = sites(JOBS[nature], store=store)
            if state == "computed":
                site.forget()
            site.outdate()
            return site

        yield make


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGINT"])
@pytest.mark.parametrize("case", CASES if ALL else CASES[:3], ids=", ".join)
def test_a_job_stopped_at_a_write_leaves_nothing_false_and_the_next_run_ends_the_same(prepare, finished, signal, case):
    whole = prepare(*case)
    wanted = Site(finished.folder, whole.call).digests()
    points = re.findall(r"write point (\d+): (.*)", whole.run().stderr)
    assert whole.digests() == wanted
    chosen = points if ALL else [points[len(points) // 3], points[-7]]
    with ThreadPoolExecutor(2) as workers:
        told = list(workers.map(lambda point: stopped(prepare(*case), int(point[0]), signal, wanted), chosen))
    faults = [f"{point} {name}: {fault}" for (point, name), fault in zip(chosen, told, strict=True) if fault]
    print(f"{', '.join(case)}, {signal}: {len(chosen)} of {len(points)} write points, {len(faults)} faults")
    assert faults == []


def stopped(site: Site, point: int, signal: str, wanted: dict[str, str]) -> str:
    """Stop a job at a write point and run it again; return what is wrong, or nothing."""
    died = site.run(point, signal)
    if died.returncode != (-9 if signal == "SIGKILL" else 130):
        return f"ended with {died.returncode}: {died.stderr[-500:]}"
    if faults := site.faults():
        return f"taken for whole: {faults}"
    again = site.run()
    if again.returncode:
        return f"the next run ended with {again.returncode}: {again.stderr[-500:]}"
    if site.digests() != wanted:
        return "the next run ended otherwise"
    if found := [*site.leftovers(), *site.faults()]:
        return f"left: {found}"
    shutil.rmtree(site.folder)
    return ""
