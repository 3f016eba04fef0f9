"""A fast BLAS for MLX's CPU back end on Linux, whose wheel links the reference BLAS."""

import ctypes
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from draftledger.errors import ConfigError, UnsupportedError

# Debian, Fedora and Arch, in this order; serial builds are left out.
_SYSTEM_PATTERNS = (
    "lib/*-linux-gnu/openblas-pthread/libopenblas.so.0",
    "lib64/libopenblasp.so.0",
    "lib/libopenblas.so.0",
)
_TRIAL = """
import sys
from pathlib import Path
from draftledger.models import blas
path, threads = sys.argv[1], int(sys.argv[2])
if path:
    blas.load_blas(Path(path), threads=threads)
import mlx.core as mx
mx.set_default_device(mx.cpu)
print(blas.gemm_gflops(512))
"""


@dataclass(frozen=True, slots=True)
class BlasInfo:
    """What identifies a loaded BLAS: file name and digest, build string, kernel family, threads."""

    name: str
    sha256: str
    version: str
    core: str
    threads: int


def candidates() -> list[Path]:
    """OpenBLAS libraries found here, best first: the PyPI package, this prefix, the system; Linux only."""
    if sys.platform != "linux":
        return []
    spec = importlib.util.find_spec("ngsolve_openblas")
    folders = list(spec.submodule_search_locations or []) if spec else []
    found = [path for folder in folders for path in sorted(Path(folder).glob("libopenblas*.so*"))]
    found += sorted(Path(sys.prefix).glob("lib/libopenblas.so.0"))
    for pattern in _SYSTEM_PATTERNS:
        found += sorted(Path("/usr").glob(pattern))
    return list(dict.fromkeys(path.resolve() for path in found))


def load_blas(path: Path, *, threads: int, core: str | None = None) -> None:
    """Load an OpenBLAS so that the MLX imported afterwards binds to it.

    `core` forces a kernel family (as named by `BlasInfo.core`). A library that is already loaded only gets
    its thread count set.
    Raises ConfigError when MLX was imported first, UnsupportedError when the file is not such a library.
    """
    if threads < 1:
        raise ConfigError(f"runtime.threads must be at least 1, not {threads}")
    resident = _resident(path)
    if resident is None and "mlx.core" in sys.modules:
        raise ConfigError(f"{path.name}: MLX is imported already; load the BLAS before anything imports mlx")
    os.environ["OPENBLAS_NUM_THREADS"] = str(threads)
    if core is not None:
        os.environ["OPENBLAS_CORETYPE"] = core
    library = resident or _open(path)
    library.openblas_set_num_threads(ctypes.c_int(threads))


def _open(path: Path) -> ctypes.CDLL:
    try:
        library = _dlopen(path)
    except OSError as error:
        raise UnsupportedError(f"{path}: cannot be loaded: {error}") from error
    if not (hasattr(library, "cblas_sgemm") and hasattr(library, "openblas_set_num_threads")):
        raise UnsupportedError(f"{path}: exports no plain cblas_sgemm, so MLX would not bind to it")
    return library


def _dlopen(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        runtime = _bundled_fortran() if "libgfortran" in str(error) else []
        if not runtime:
            raise
    # The system has no libgfortran, MLX's wheel has one: its loader finds it beside the library. Links need no room on
    # a full disk, but without `dir` Python would try to write a file first.
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/tmp")) as folder:
        for target in (path, *runtime):
            (Path(folder) / target.name).symlink_to(target)
        (Path(folder) / "libgfortran.so.5").symlink_to(runtime[0])
        return ctypes.CDLL(str(Path(folder) / path.name), mode=ctypes.RTLD_GLOBAL)


def _bundled_fortran() -> list[Path]:
    """The Fortran run-time library inside MLX's wheel, then what it needs."""
    spec = importlib.util.find_spec("mlx")
    roots = [Path(folder).parent for folder in (spec and spec.submodule_search_locations) or []]
    patterns = ("mlx_*.libs/libgfortran-*", "mlx_*.libs/libquadmath-*")
    return [path for pattern in patterns for root in roots for path in sorted(root.glob(pattern))]


def _resident(path: Path) -> ctypes.CDLL | None:
    """The library if this process holds it already."""
    if sys.platform != "linux":
        return None
    try:
        return ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def describe(path: Path) -> BlasInfo:
    """Identify a BLAS that `load_blas` has loaded; raises ConfigError when it is not loaded."""
    library = _resident(path)
    if library is None:
        raise ConfigError(f"{path}: not loaded; call load_blas first")
    for function in (library.openblas_get_config, library.openblas_get_corename):
        function.restype = ctypes.c_char_p
    return BlasInfo(
        name=path.name,
        sha256=file_sha256(path),
        version=library.openblas_get_config().decode().strip(),
        core=library.openblas_get_corename().decode(),
        threads=library.openblas_get_num_threads(),
    )


def file_sha256(*paths: Path) -> str:
    """Hex SHA-256 of the files' bytes, one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def physical_cores() -> int:
    """Physical cores that this process may use (hardware threads where the system does not tell)."""
    if sys.platform == "darwin":
        answer = subprocess.run(["sysctl", "-n", "hw.physicalcpu"], capture_output=True, text=True)
        return int(answer.stdout) if answer.returncode == 0 else os.cpu_count() or 1
    text = Path("/proc/cpuinfo").read_text() if sys.platform == "linux" else ""
    return count_cores(text, usable_cpus())


def usable_cpus() -> set[int]:
    """Hardware threads that the scheduler allows this process."""
    if sys.platform == "linux":
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def count_cores(cpuinfo: str, usable: set[int]) -> int:
    """Distinct (package, core) pairs among the usable hardware threads of a /proc/cpuinfo text."""
    cores = set()
    for paragraph in cpuinfo.split("\n\n"):
        fields = dict(line.split(":", 1) for line in paragraph.splitlines() if ":" in line)
        entry = {key.strip(): value.strip() for key, value in fields.items()}
        if "core id" in entry and int(entry.get("processor", -1)) in usable:
            cores.add((entry.get("physical id", "0"), entry["core id"]))
    return len(cores) or len(usable)


def trial(path: Path | None, *, threads: int) -> float | None:
    """Float32 GEMM rate, GFLOP/s, of MLX in a fresh process with that BLAS; None when the process dies.

    A library built for another processor kills the process that calls it, so candidates are tried apart.
    """
    package_root = str(Path(__file__).parents[2])
    environment = dict(os.environ, PYTHONPATH=package_root, MLX_DISABLE_COMPILE="1")
    command = [sys.executable, "-c", _TRIAL, str(path or ""), str(threads)]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment)
    return float(answer.stdout) if answer.returncode == 0 else None


def gemm_gflops(n: int = 1024) -> float:
    """Best float32 rate, GFLOP/s, of an n × n matrix product on MLX's default device."""
    import mlx.core as mx

    a = mx.ones((n, n), dtype=mx.float32)
    mx.eval(a)
    return 2e-9 * n**3 / _best_seconds(lambda: mx.eval(a @ a))


def gemv_gbps(n: int = 4096) -> float:
    """Best rate, GB/s of weights read, of an n × n float32 matrix times a vector."""
    import mlx.core as mx

    matrix, vector = mx.ones((n, n), dtype=mx.float32), mx.ones((n, 1), dtype=mx.float32)
    mx.eval(matrix, vector)
    return 4e-9 * n**2 / _best_seconds(lambda: mx.eval(matrix @ vector))


def copy_gbps(mebibytes: int = 64) -> float:
    """Best rate, GB/s read plus written, of an elementwise float32 pass."""
    import mlx.core as mx

    x = mx.ones((mebibytes << 18,), dtype=mx.float32)
    mx.eval(x)
    return 2e-9 * x.nbytes / _best_seconds(lambda: mx.eval(x + 1))


def _best_seconds(call: Callable[[], None], repeats: int = 5) -> float:
    call()
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best
