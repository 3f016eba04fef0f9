"""One job without Snakemake, started from a state we choose, and what must hold whatever stopped it."""

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workspace import ROOT, Workspace

KILLPOINT = ROOT / "tests" / "killpoint.py"
PREFIX = "Shell command: python "
RECORDS = ("", ".manifest.json", ".recipe.json")


def commands(work: Workspace) -> dict[str, list[str]]:
    """Return every job's command line, by its first output."""
    lines = [line for line in work.snakemake("-n", "-p", "-F").splitlines() if line.startswith(PREFIX)]
    calls = [shlex.split(line.removeprefix(PREFIX).split(" 2>&1 ")[0]) for line in lines]
    return {call[call.index("--output") + 1].removeprefix(f"results/{work.experiment}/"): call for call in calls}


@dataclass(frozen=True)
class Site:
    """A copy of a finished run in which one job is about to run again."""

    folder: Path
    call: list[str]
    experiment: str = "nano"

    @property
    def results(self) -> Path:
        """Return the folder of the experiment's results."""
        return self.folder / "results" / self.experiment

    @property
    def store(self) -> Path:
        """Return the folder of the store, wherever it lies."""
        return (self.folder / "results" / "store").resolve()

    @property
    def outputs(self) -> list[Path]:
        """Return the job's payloads."""
        names = self.call[self.call.index("--output") + 1 :]
        return [self.folder / name for name in names if not name.endswith(".manifest.json")]

    def run(self, point: int = 0, signal: str = "SIGKILL", *, limit=None, **environment: str) -> Any:
        """Run the job; stop it by the signal at that write point, and with `limit` let no file grow beyond it."""
        return subprocess.run(
            [sys.executable, str(KILLPOINT), str(point), signal, *self.call],
            cwd=self.folder,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment},
            capture_output=True,
            text=True,
            preexec_fn=limit,
        )

    def action(self) -> Path:
        """Return the store's index entry of the job."""
        key = json.loads(_beside(self.outputs[0], ".recipe.json").read_text())["key"]
        return self.store / "actions" / f"{key}.json"

    def draws(self) -> int:
        """Return how many draws of the job the index has."""
        return len(json.loads(self.action().read_text())["draws"])

    def copies(self) -> list[Path]:
        """Return the store's copies of the first payload, the two of a draw in their order."""
        sha256 = json.loads(_beside(self.outputs[0], ".manifest.json").read_text())["sha256"]
        return [path for kind in ("blobs", "spares") if (path := self.store / kind / sha256[:2] / sha256).exists()]

    def forget(self) -> None:
        """Take the job out of the store."""
        for draw in json.loads(self.action().read_text())["draws"]:
            for kind in ("blobs", "spares"):
                for item in draw:
                    (self.store / kind / item["sha256"][:2] / item["sha256"]).unlink(missing_ok=True)
        self.action().unlink()

    def outdate(self) -> None:
        """Put other payloads, whole ones, where the job's will be."""
        for output in self.outputs:
            output.unlink()
            output.write_text("old")
            manifest = json.loads(_beside(output, ".manifest.json").read_text())
            manifest |= {"bytes": 3, "sha256": hashlib.sha256(b"old").hexdigest()}
            _beside(output, ".manifest.json").write_text(json.dumps(manifest))

    def faults(self) -> list[str]:
        """Return whatever is half-written and would be taken for whole."""
        return [*self._false_manifests(), *self._false_blobs(), *self._false_entries()]

    def _false_manifests(self) -> Iterator[str]:
        for path in self.results.rglob("*.manifest.json"):
            payload = path.with_name(path.name.removesuffix(".manifest.json"))
            if not payload.is_file() or sha256_of(payload) != json.loads(path.read_text())["sha256"]:
                yield str(path)

    def _false_blobs(self) -> Iterator[str]:
        for kind in ("blobs", "spares"):
            for path in (self.store / kind).glob("*/*"):
                if sha256_of(path) != path.name:
                    yield str(path)

    def _false_entries(self) -> Iterator[str]:
        for path in (self.store / "actions").glob("[!.]*"):
            for item in (item for draw in json.loads(path.read_text())["draws"] for item in draw):
                if not (self.store / "blobs" / item["sha256"][:2] / item["sha256"]).is_file():
                    yield f"{path}: {item['name']}"

    def leftovers(self) -> list[Path]:
        """Return what only an unfinished job may leave."""
        scratch = [path for name in ("scratch", "partial") for path in (self.store / name).glob("*")]
        return [*scratch, *self.results.rglob("*.tmp"), *self.store.rglob("*.tmp")]

    def digests(self) -> dict[str, str]:
        """Return the digests of the job's payloads, manifests and recipes."""
        paths = [_beside(output, suffix) for output in self.outputs for suffix in RECORDS]
        return {path.relative_to(self.results).as_posix(): sha256_of(path) for path in paths}


def site(finished: Workspace, call: list[str], folder: Path, *, store: Path | None = None) -> Site:
    """Copy a finished run's results; with `store` the store is put there, and linked to."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("config", "workflow_scripts"):
        (folder / name).symlink_to(finished.folder / name)
    shutil.copytree(finished.results, folder / "results" / finished.experiment)
    shutil.copytree(finished.store, store or folder / "results" / "store", dirs_exist_ok=True)
    if store:
        (folder / "results" / "store").symlink_to(store)
    return Site(folder, call, finished.experiment)


def sha256_of(path: Path) -> str:
    """Return a file's sha256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _beside(payload: Path, suffix: str) -> Path:
    return payload.with_name(payload.name + suffix)
