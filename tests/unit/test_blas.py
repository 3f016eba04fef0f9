"""The BLAS: found in a fixed order, loaded before MLX, bound by MLX, identified."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from draftledger.errors import ConfigError
from draftledger.models import blas

LINUX = sys.platform == "linux"
needs_blas = pytest.mark.skipif(not blas.candidates(), reason="no OpenBLAS here")
# Two packages of two cores with two hardware threads each.
CPUINFO = "\n\n".join(f"processor\t: {cpu}\nphysical id\t: {cpu // 4}\ncore id\t\t: {cpu % 2}" for cpu in range(8))


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, with `path` the first candidate."""
    found = str(blas.candidates()[0]) if blas.candidates() else ""
    prelude = f"from pathlib import Path\nfrom draftledger.models import blas\npath = Path({found!r})\n"
    root = str(Path(blas.__file__).parents[2])
    variables = {**os.environ, "PYTHONPATH": root, **environment}
    return subprocess.run([sys.executable, "-c", prelude + code], capture_output=True, text=True, env=variables)


def test_candidates_are_files_in_a_fixed_order() -> None:
    found = blas.candidates()
    assert found == blas.candidates()
    assert len(set(found)) == len(found)
    assert all(path.is_file() for path in found)
    assert LINUX or not found


@pytest.mark.parametrize(("usable", "cores"), [(set(range(8)), 4), ({0, 1}, 2), ({0, 2}, 1), ({0, 4}, 2), ({5}, 1)])
def test_hardware_threads_of_a_core_count_once(usable: set[int], cores: int) -> None:
    assert blas.count_cores(CPUINFO, usable) == cores


def test_without_topology_every_usable_thread_counts() -> None:
    assert blas.count_cores("processor : 0\nBogoMIPS : 50\n", {0, 1, 2}) == 3
    assert blas.count_cores("", {0}) == 1
    assert 1 <= blas.physical_cores() <= len(blas.usable_cpus())


def test_refused_after_mlx(tmp_path: Path) -> None:
    import mlx.core  # noqa: F401

    with pytest.raises(ConfigError, match="before anything imports mlx"):
        blas.load_blas(tmp_path / "libopenblas.so", threads=1)


def test_not_loaded_and_no_threads_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not loaded"):
        blas.describe(tmp_path / "libopenblas.so")
    with pytest.raises(ConfigError, match="at least 1"):
        blas.load_blas(tmp_path / "libopenblas.so", threads=0)


@pytest.mark.skipif(not LINUX, reason="nothing is loaded elsewhere")
def test_another_library_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "libopenblas.so"
    wrong.write_text("not a library")
    answer = run(f"blas.load_blas(Path({str(wrong)!r}), threads=1)")
    assert answer.returncode == 1
    assert "UnsupportedError" in answer.stderr


@needs_blas
def test_describe_identifies_the_file() -> None:
    path = blas.candidates()[0]
    blas.load_blas(path, threads=blas.physical_cores())
    info = blas.describe(path)
    assert info.sha256 == blas.file_sha256(path)
    assert info.threads == blas.physical_cores()
    assert "OpenBLAS" in info.version
    assert info.core


@needs_blas
def test_threads_and_kernel_family_are_forced() -> None:
    own = blas.describe(blas.candidates()[0]).core
    core = "Nehalem" if "x86_64" in os.uname().machine else own
    answer = run(
        f"blas.load_blas(path, threads=1, core={core!r})\ninfo = blas.describe(path)\nprint(info.core, info.threads)"
    )
    assert answer.stdout.split() == [core, "1"]


@needs_blas
def test_mlx_binds_to_it(tmp_path: Path) -> None:
    log = tmp_path / "bindings"
    code = (
        "blas.load_blas(path, threads=1)\nimport mlx.core as mx\nmx.set_default_device(mx.cpu)\n"
        "a = mx.ones((8, 8))\nmx.eval(a @ a)"
    )
    assert run(code, LD_DEBUG="bindings", LD_DEBUG_OUTPUT=str(log)).returncode == 0
    lines = [line for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    bound = [line for line in lines if "libmlx.so" in line and "`cblas_sgemm'" in line]
    assert bound
    assert all("openblas" in line.split(" to ")[1] for line in bound)


@needs_blas
def test_trial_survives_a_dying_candidate(tmp_path: Path) -> None:
    broken = tmp_path / "libopenblas.so"
    broken.write_bytes(b"\x7fELF")
    assert blas.trial(broken, threads=1) is None
    rate = blas.trial(blas.candidates()[0], threads=1)
    assert rate is not None
    assert rate > 0
