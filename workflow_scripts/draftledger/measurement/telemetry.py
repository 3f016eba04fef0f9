"""What the machine was doing while an answer was timed, and the lock that keeps timing jobs apart."""

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def timing_lock() -> Iterator[None]:
    """Hold this machine's timing lock: a second timing job, of any workflow, waits."""
    path = Path(tempfile.gettempdir()) / f"draftledger-timing-{os.getuid()}.lock"
    with open(path, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def telemetry() -> dict[str, float | None]:
    """Return the load average over a minute, mean clock in MHz and hottest zone in °C; null where not readable."""
    return {"load1": os.getloadavg()[0], "cpu_mhz": _clock(), "temperature_c": _temperature()}


def _clock() -> float | None:
    path = Path("/proc/cpuinfo")
    found = re.findall(r"^cpu MHz\s*:\s*([\d.]+)", path.read_text(), re.MULTILINE) if path.exists() else []
    return sum(map(float, found)) / len(found) if found else None


def _temperature() -> float | None:
    zones = Path("/sys/class/thermal").glob("thermal_zone*/temp")
    return max((degrees for zone in zones if (degrees := _degrees(zone)) is not None), default=None)


def _degrees(zone: Path) -> float | None:
    try:
        return int(zone.read_text()) / 1000
    except (OSError, ValueError):
        return None  # a sensor that is switched off cannot be read, whatever its mode says
