"""What this machine offers to a run, and what is missing: `draftledger doctor`."""

import importlib.metadata
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from draftledger.errors import DraftledgerError
from draftledger.models import backend

_GIB = 1 << 30
# Below these the default run is slow or does not fit.
_MIN_GFLOPS = 15.0
_MIN_DISK_GIB = 5.0
_MIN_MEMORY_GIB = 4.0
_VERSIONS = {"mlx": ((0, 32), (0, 33)), "mlx-lm": ((0, 32), (0, 33)), "snakemake": ((9, 27), (10,))}


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report: what was looked at, what was found, whether it suffices, what to do."""

    name: str
    value: str
    ok: bool
    advice: str = ""


def report() -> list[Check]:
    """Look at the interpreter, packages, disk, memory, device, BLAS and speed; takes a few seconds."""
    return [*_software(), *_space(), *_compute()]


def _software() -> Iterator[Check]:
    found = sys.version_info[:3]
    supported = (3, 11) <= found < (3, 14)
    yield Check("python", ".".join(map(str, found)), supported, "use Python 3.11, 3.12 or 3.13")
    for name, (low, high) in _VERSIONS.items():
        wanted = f">={_dotted(low)},<{_dotted(high)}"
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield Check(name, "not installed", False, f'pip install "{name}{wanted}"')
            continue
        ok = low <= _numbers(version) < high
        yield Check(name, version, ok, f'pip install "{name}{wanted}"')


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")[:3]
    return tuple(int(part) for part in parts if part.isdigit())


def _space() -> Iterator[Check]:
    free = shutil.disk_usage(Path.cwd()).free / _GIB
    yield Check("free disk", f"{free:.1f} GiB", free >= _MIN_DISK_GIB, f"free {_MIN_DISK_GIB:.0f} GiB here")


def _compute() -> Iterator[Check]:
    try:
        environment, facts = backend.probe(threads="auto", dtype="float32")
    except DraftledgerError as error:
        yield Check("device", "not usable", False, str(error))
        return
    memory = facts["memory_bytes"] / _GIB
    yield Check(
        "memory",
        f"{memory:.1f} GiB",
        memory >= _MIN_MEMORY_GIB,
        f"the default run needs {_MIN_MEMORY_GIB:.0f} GiB",
    )
    yield Check("device", f"{environment['backend']}: {facts['chip']}, {environment['threads']} threads", True)
    yield _blas_check(environment)
    yield Check(
        "float32 GEMM",
        f"{facts['gflops']:.0f} GFLOP/s",
        facts["gflops"] >= _MIN_GFLOPS,
        "the default run will take hours; see the BLAS line",
    )
    yield Check("bandwidth", f"gemv {facts['gemv_gbps']:.1f} GB/s, copy {facts['copy_gbps']:.1f} GB/s", True)


def _blas_check(environment: dict) -> Check:
    found = environment["blas"]
    if found is not None:
        return Check("BLAS", f"{found['name']}, {found['core']} kernels, {found['sha256'][:12]}", True)
    if environment["backend"] == "cpu" and environment["platform"].startswith("linux"):
        advice = "install the cpu extra (ngsolve-openblas) or libopenblas0-pthread"
        return Check("BLAS", "reference BLAS of the mlx wheel", False, advice)
    return Check("BLAS", "not needed on this back end", True)


def render(checks: list[Check]) -> None:
    """Print the checks as a table; advice stands beside what fails."""
    from rich.console import Console
    from rich.table import Table

    table = Table("check", "found", "", "what to do")
    for check in checks:
        state = "[green]ok[/green]" if check.ok else "[red]fails[/red]"
        table.add_row(check.name, check.value, state, "" if check.ok else check.advice)
    Console().print(table)


def main() -> int:
    """Print the report; 1 when a check fails, else 0."""
    checks = report()
    render(checks)
    return 0 if all(check.ok for check in checks) else 1
