"""What every benchmark shares: the environment, interleaved pairs, and the last line as JSON."""

import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "workflow_scripts"))


def prepare() -> dict[str, Any]:
    """Probe this machine and prepare MLX on it; return the environment class, bfloat16 off the CPU."""
    from draftledger.models.backend import prepare, probe

    environment, _ = probe(threads="auto", dtype="float32")
    environment["dtype"] = "float32" if environment["backend"] == "cpu" else "bfloat16"
    prepare(environment)
    return environment


def interleaved(sides: Sequence[Callable[[], float]], *, rounds: int) -> list[list[float]]:
    """Run both sides `rounds` times in a shuffled order each round; return seconds by side."""
    order, seconds = random.Random(1), [[] for _ in sides]
    for _ in range(rounds):
        for place in order.sample(range(len(sides)), len(sides)):
            seconds[place].append(sides[place]())
    return seconds


def command_seconds(command: Sequence[str], *, folder: Path, repeats: int) -> float:
    """Run a command `repeats` times in a folder and return the median of its seconds, start to end."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    return median(seconds)


def ratio(first: Sequence[float], second: Sequence[float]) -> dict[str, float]:
    """Return the geometric mean of second/first pair by pair with its 95 % Student interval."""
    from scipy.stats import t

    logs = [math.log(b / a) for a, b in zip(first, second, strict=True)]
    half = t.ppf(0.975, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return {name: math.exp(mean(logs) + sign * half) for name, sign in (("ratio", 0), ("low", -1), ("high", 1))}


def finish(name: str, environment: dict[str, Any], **figures: Any) -> None:
    """Print the benchmark's one JSON line, last."""
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in figures.items()}
    where = {key: environment[key] for key in ("backend", "dtype", "threads")}
    blas = environment["blas"]["name"] if environment["blas"] else None
    print(json.dumps({"benchmark": name, **where, "blas": blas, **rounded}))


def default_target(environment: dict[str, Any]) -> Any:
    """Load the default run's target; say how to make it when it is not there."""
    folder = ROOT / "results" / "model"
    if not (folder / "config.json").is_file():
        sys.exit("skipped: no results/model; run `snakemake -j1 results/model/config.json` first")
    from draftledger.models.load import load_target

    return load_target(folder, dtype=environment["dtype"])
