"""Choose, identify and prepare the MLX back end: device, BLAS, threads, dtype."""

import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from draftledger.errors import ConfigError, UnsupportedError
from draftledger.models import blas

_BACKENDS = ("cpu", "metal", "cuda")
_DTYPES = ("float32", "bfloat16")
_RERUN = "re-run the environment rule: snakemake -R environment"
_DETECT = """
import mlx.core as mx
print("metal" if mx.metal.is_available() else "cuda" if mx.cuda.is_available() else "cpu")
"""


def prepare(environment: dict) -> None:
    """Make this process compute as the environment class says; call it before anything imports mlx.

    Loads the BLAS of the recorded digest with its kernel family, imports MLX, sets the default device, and
    on CPU turns compilation off (it would call a C++ compiler).
    Raises ConfigError when this machine no longer matches the class.
    """
    _check_current(environment)
    wanted = environment["blas"]
    if wanted is not None:
        path = _candidate(wanted["sha256"])
        blas.load_blas(path, threads=environment["threads"], core=wanted["core"])
        core = blas.describe(path).core
        if core != wanted["core"]:
            raise ConfigError(f"{path.name} runs {core} kernels, the class says {wanted['core']}; {_RERUN}")
    _select_device(environment["backend"])


def probe(*, threads: str | int, dtype: str, backend: str = "auto") -> tuple[dict, dict]:
    """Identify this machine: the environment class, and the run-time facts that are never an input.

    `threads` is a count or "auto" (physical cores). Picks the first BLAS candidate that works, loads it and
    prepares MLX. Without one it warns on stderr and says how slow products are.
    Raises ConfigError for unknown settings, UnsupportedError for a back end that is not there.
    """
    count = thread_count(threads)
    if dtype not in _DTYPES:
        raise ConfigError(f"runtime.dtype is {dtype!r}; use one of {', '.join(_DTYPES)}")
    kind = _choose(backend)
    path = _working_blas(count) if kind == "cpu" else None
    if path is not None:
        blas.load_blas(path, threads=count)
    _select_device(kind)
    facts = _facts(kind, path)
    if kind == "cpu" and path is None and sys.platform == "linux":
        _warn_slow(facts["gflops"])
    return _environment_class(kind, path, count, dtype), facts


def thread_count(threads: str | int) -> int:
    """The number of threads that a setting means; raises ConfigError unless "auto" or a positive integer."""
    if threads == "auto":
        return blas.physical_cores()
    if not str(threads).isdigit() or int(threads) < 1:
        raise ConfigError(f"runtime.threads is {threads!r}; use auto or a positive integer")
    return int(threads)


def _check_current(environment: dict) -> None:
    found = _versions()
    if "mlx_library" in environment:
        found["mlx_library"] = blas.file_sha256(*_mlx_libraries())
    if environment.get("backend") == "cpu":
        found["chip"] = _chip("cpu")
    for key, value in found.items():
        if environment.get(key, value) != value:
            raise ConfigError(f"{key} is {value}, the environment class says {environment[key]}; {_RERUN}")


def _versions() -> dict:
    return {
        "platform": f"{sys.platform}-{platform.machine()}",
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "mlx": importlib.metadata.version("mlx"),
        "mlx_lm": importlib.metadata.version("mlx-lm"),
    }


def _candidate(sha256: str) -> Path:
    for path in blas.candidates():
        if blas.file_sha256(path) == sha256:
            return path
    raise ConfigError(f"no BLAS here has the digest {sha256[:12]}… of the environment class; {_RERUN}")


def _select_device(kind: str) -> None:
    import mlx.core as mx

    mx.set_default_device(mx.cpu if kind == "cpu" else mx.gpu)
    if kind == "cpu":
        mx.disable_compile()


def _choose(backend: str) -> str:
    if backend not in ("auto", *_BACKENDS):
        raise ConfigError(f"runtime.backend is {backend!r}; use auto, {', '.join(_BACKENDS)}")
    if backend == "cpu":
        return backend
    # In a process of its own: importing MLX here would forbid loading a BLAS.
    answer = subprocess.run([sys.executable, "-c", _DETECT], capture_output=True, text=True)
    if answer.returncode != 0:
        last = (answer.stderr.strip().splitlines() or ["no message"])[-1]
        raise UnsupportedError(f"mlx cannot be imported: {last}; install one of the extras cpu, cuda13, metal")
    found = answer.stdout.strip()
    if backend not in ("auto", found):
        raise UnsupportedError(f"runtime.backend is {backend}, but this installation of mlx offers {found}")
    return found


def _working_blas(threads: int) -> Path | None:
    return next((path for path in blas.candidates() if blas.trial(path, threads=threads) is not None), None)


def _environment_class(kind: str, path: Path | None, threads: int, dtype: str) -> dict:
    return {
        "schema": 1,
        **_versions(),
        "mlx_library": blas.file_sha256(*_mlx_libraries()),
        "backend": kind,
        "chip": _chip(kind),
        "blas": asdict(blas.describe(path)) if path else None,
        "threads": threads,
        "dtype": dtype,
    }


def _mlx_libraries() -> list[Path]:
    """MLX's core library, then its Metal kernels where there are any."""
    spec = importlib.util.find_spec("mlx")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    names = ("libmlx.so", "libmlx.dylib", "mlx.metallib")
    found = [path for name in names for folder in folders for path in sorted(folder.glob(f"lib/{name}"))]
    if not found:
        raise UnsupportedError("mlx is installed without its core library; reinstall mlx")
    return found


def _chip(kind: str) -> str:
    """What selects kernels: processor family and model, Apple chip, or CUDA device."""
    if kind == "cuda":
        return _device_name()
    if sys.platform == "darwin":
        return _sysctl("machdep.cpu.brand_string")
    return cpu_family(_cpuinfo())


def cpu_family(cpuinfo: str) -> str:
    """Vendor and family/model ("AuthenticAMD 23/49"; on Arm "0x41 8/0xd0c") of a /proc/cpuinfo text."""
    pairs = (line.split(":", 1) for line in cpuinfo.splitlines() if ":" in line)
    entry: dict[str, str] = {}
    for key, value in pairs:
        entry.setdefault(key.strip(), value.strip())
    if "vendor_id" in entry:
        return f"{entry['vendor_id']} {entry.get('cpu family', '?')}/{entry.get('model', '?')}"
    if "CPU implementer" in entry:
        return f"{entry['CPU implementer']} {entry.get('CPU architecture', '?')}/{entry.get('CPU part', '?')}"
    return platform.machine()


def _facts(kind: str, path: Path | None) -> dict:
    return {
        "chip": _exact_chip(kind),
        "os": platform.platform(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "logical_cpus": os.cpu_count(),
        "usable_cpus": len(blas.usable_cpus()),
        "blas_path": str(path) if path else None,
        "gflops": round(blas.gemm_gflops(), 1),
        "gemv_gbps": round(blas.gemv_gbps(), 1),
        "copy_gbps": round(blas.copy_gbps(), 1),
    }


def _exact_chip(kind: str) -> str:
    if kind != "cpu":
        return _device_name()
    if sys.platform == "darwin":
        return _sysctl("machdep.cpu.brand_string")
    found = re.search(r"^model name\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    return found.group(1) if found else platform.processor() or platform.machine()


def _device_name() -> str:
    import mlx.core as mx

    return str(mx.device_info(mx.gpu)["device_name"])


def _cpuinfo() -> str:
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.exists() else ""


def _sysctl(name: str) -> str:
    answer = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=True)
    return answer.stdout.strip()


def _warn_slow(gflops: float) -> None:
    """Say on stderr how far MLX is behind the BLAS inside NumPy's wheel on this machine."""
    factor = _numpy_gflops() / gflops
    print(
        f"warning: no OpenBLAS found: MLX computes {gflops:.0f} GFLOP/s, {factor:.0f} times slower than "
        f"NumPy here; install the cpu extra, or libopenblas0-pthread, then {_RERUN}",
        file=sys.stderr,
    )


def _numpy_gflops(n: int = 1024) -> float:
    import numpy as np

    a = np.ones((n, n), dtype=np.float32)
    best = float("inf")
    for _ in range(4):
        start = time.perf_counter()
        np.matmul(a, a)
        best = min(best, time.perf_counter() - start)
    return 2e-9 * n**3 / best
