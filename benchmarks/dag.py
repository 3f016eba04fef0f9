"""Seconds of a dry-run: 6 arms × 5 seeds × 3 sessions, and the same with 500 seeds."""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from _common import ROOT, command_seconds

BARS = {5: 4.0, 500: 60.0}
REPEATS = {5: 3, 500: 1}
SOURCES = ("Snakefile", "rules", "config", "envs", "workflow_scripts")


def main() -> None:
    """Time `snakemake -n` of a nano configuration grown to each number of seeds."""
    with tempfile.TemporaryDirectory() as folder:
        for name in SOURCES:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, Path(folder) / name)
        found = {seeds: _seconds(Path(folder), seeds) for seeds in BARS}
    for seeds, seconds in found.items():
        print(f"{seeds} seeds: {seconds:.1f} s (bar {BARS[seeds]:.0f})")
    print(
        json.dumps(
            {"benchmark": "dag", **{f"seconds_{seeds}": round(s, 2) for seeds, s in found.items()}, "bars": BARS}
        )
    )


def _config(seeds: int) -> dict[str, Any]:
    config = yaml.safe_load((ROOT / "config" / "nano.yaml").read_text())
    timing = config["timing"] | {"sessions": 3}
    return config | {"seeds": list(range(1, seeds + 1)), "timing": timing}


def _seconds(folder: Path, seeds: int) -> float:
    (folder / "grown.yaml").write_text(yaml.safe_dump(_config(seeds)))
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "-n",
        "-q",
        "--configfile",
        "grown.yaml",
        "--",
        "results/nano/summary.parquet",
    ]
    return command_seconds(command, folder=folder, repeats=REPEATS[seeds])


if __name__ == "__main__":
    main()
