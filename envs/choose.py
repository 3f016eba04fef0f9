"""Prints the path of the lock for this machine and Python; needs nothing but the standard library."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path

BACKENDS = ("cpu", "cuda13", "metal")
MACHINES = {"x86_64": "", "aarch64": "-aarch64"}


def pick_backend(*, system: str, wanted: str, nvidia: bool) -> str:
    """The back end asked for, or the one this system has; raises ValueError for an impossible wish."""
    if wanted and wanted not in BACKENDS:
        raise ValueError(f"DRAFTLEDGER_BACKEND={wanted} is not known: use one of {', '.join(BACKENDS)}")
    backend = wanted or ("metal" if system == "Darwin" else "cuda13" if nvidia else "cpu")
    if (backend == "metal") != (system == "Darwin"):
        raise ValueError(f"DRAFTLEDGER_BACKEND={backend} does not exist on {system}: unset it")
    return backend


def lock_name(*, system: str, machine: str, backend: str, minor: int) -> str:
    """File name of the lock; raises ValueError where MLX has no wheels."""
    suffix = MACHINES.get(machine) if system == "Linux" else "" if machine == "arm64" else None
    if system not in ("Linux", "Darwin") or suffix is None:
        raise ValueError(f"no lock for {system} {machine}: use Linux x86_64 or aarch64, or macOS on arm64")
    return f"{backend}{suffix}-py3{minor}.txt"


def check_glibc(name: str, version: str) -> None:
    """Raises ValueError on a Linux whose C library is too old for MLX's wheels (manylinux_2_35)."""
    if name != "glibc" or tuple(int(part) for part in version.split(".")[:2]) < (2, 35):
        raise ValueError(f"MLX's wheels need glibc 2.35 or newer, found {name or 'another C library'} {version}")


def main() -> int:
    system = platform.system()
    try:
        backend = pick_backend(
            system=system,
            wanted=os.environ.get("DRAFTLEDGER_BACKEND", ""),
            nvidia=shutil.which("nvidia-smi") is not None,
        )
        name = lock_name(system=system, machine=platform.machine(), backend=backend, minor=sys.version_info.minor)
        if system == "Linux":
            check_glibc(*platform.libc_ver())
    except ValueError as error:
        print(f"envs/choose.py: {error}", file=sys.stderr)
        return 1
    print(Path(os.path.relpath(Path(__file__).parent), name).as_posix())
    return 0


if __name__ == "__main__":
    sys.exit(main())
