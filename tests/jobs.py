"""The jobs of an experiment as a dry-run lists them, and which job makes an artefact."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

SUMMARY = {"summary", "figures", "report", "ledger"}
MAKERS = (
    (r"adapters/(\w+)/seed(\d+)-launch(\d+)/", r"adapter \1 \2 \3"),
    (r"decode/(\w+)/([\w-]+)/", r"decode \1 \2"),
    (r"timing/([\w-]+)/session(\d+)", r"timing \1 \2"),
    (r"teacher/(\w+)-(\d+)", r"teacher \1 \2"),
    (r"SHA256SUMS", "ledger"),
    (r"(\w+)", r"\1"),
)

Arm = dict[str, Any]


@dataclass(frozen=True)
class Jobs:
    """What the jobs of a configuration are called."""

    config: dict[str, Any]

    @property
    def draws(self) -> list[tuple[int, int]]:
        """Return every seed and launch."""
        return [(seed, launch) for seed in self.config["seeds"] for launch in range(self.config["launches"])]

    def adapters(self, *drafters: str) -> set[str]:
        """Return the training jobs of some drafters, or of all that arms decode with."""
        trained = {arm["drafter"] for arm in self.config["arms"].values() if has_seed(arm)}
        return {f"adapter {name} {s} {n}" for name in drafters or trained for s, n in self.draws}

    def decodes(self, wanted: Callable[[Arm], bool] = lambda arm: True) -> set[str]:
        """Return the decoding jobs of the arms whose settings are wanted."""
        arms = {name: arm for name, arm in self.config["arms"].items() if wanted(arm)}
        shared = {f"decode {name} shared" for name, arm in arms.items() if not has_seed(arm)}
        seeded = {name for name, arm in arms.items() if has_seed(arm)}
        return shared | {f"decode {name} seed{s}-launch{n}" for name in seeded for s, n in self.draws}

    def timing(self) -> set[str]:
        """Return the timing jobs."""
        sessions = range(1, self.config["timing"]["sessions"] + 1)
        return {f"timing seed{s}-launch{n} {session}" for s, n in self.draws for session in sessions}

    def teacher(self) -> set[str]:
        """Return the jobs that read the target's distributions."""
        size = self.config["teacher"]["shard_windows"]
        shards = {split: -(-self.config["windows"][split] // size) for split in ("train", "validation")}
        return {f"teacher {split} {shard:04d}" for split, count in shards.items() for shard in range(count)}


def has_seed(arm: Arm) -> bool:
    """Tell whether an arm decodes with weights that are trained here."""
    return "drafter" in arm and not arm.get("untrained")


def makers(names: Iterable[str]) -> set[str]:
    """Return the jobs that make the artefacts of those names."""
    return {_maker(name) for name in names}


def _maker(name: str) -> str:
    found = next((match, job) for pattern, job in MAKERS if (match := re.match(pattern, name)))
    return found[0].expand(found[1])
