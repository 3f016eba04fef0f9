"""A folder with the workflow in it: edit it, ask Snakemake what would run, run it, read what was done."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("Snakefile", "rules", "config", "envs", "profiles", "workflow_scripts", "LICENSE", "CITATION.cff", "docs")


class Workspace:
    """A copy of the workflow and perhaps of its results."""

    def __init__(self, folder: Path, experiment: str = "nano"):
        self.folder, self.experiment = folder, experiment
        self.results = folder / "results" / experiment
        self.store = folder / "results" / "store"
        self.configfile = folder / "config" / f"{experiment}.yaml"

    @property
    def config(self) -> dict[str, Any]:
        """Return the experiment's settings as they are now."""
        return yaml.safe_load(self.configfile.read_text())

    def configure(self, path: str, value: Any) -> None:
        """Change one setting, named by its keys with dots between."""
        config = self.config
        *keys, last = path.split(".")
        block = config
        for key in keys:
            block = block[key]
        block[last] = value
        self.configfile.write_text(yaml.safe_dump(config, sort_keys=False))

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text that stands once in a file."""
        path = self.folder / name
        assert path.read_text().count(old) == 1, f"{old!r} in {name}"
        path.write_text(path.read_text().replace(old, new))

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of Snakemake on the experiment."""
        config = self.configfile.relative_to(self.folder).as_posix()
        return [sys.executable, "-m", "snakemake", "--nocolor", "--configfile", config, *arguments]

    def snakemake(self, *arguments: str, prefix=(), check=True, **environment: str) -> str:
        """Run Snakemake on the experiment and return all it says."""
        done = subprocess.run(
            [*prefix, *self.command(*arguments)],
            cwd=self.folder,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
        )
        assert (done.returncode == 0) == check, done.stdout[-3000:]
        return done.stdout

    def planned(self, *arguments: str) -> set[str]:
        """Return the jobs that a dry-run lists, as `rule wildcard…`, without the target rule itself."""
        text = self.snakemake("-n", *arguments)
        jobs = [_job(block) for block in re.split(r"^(?:local)?rule ", text, flags=re.M)[1:]]
        count = re.search(r"^total +(\d+)$", text, flags=re.M)
        assert len(jobs) == len(set(jobs)) == (int(count[1]) if count else 0), text
        assert jobs or "Nothing to be done" in text, text
        return set(jobs) - {"all"}

    def run(self, *arguments: str, **options) -> str:
        """Really run the workflow."""
        return self.snakemake(*arguments, **options)

    def tool(self, *arguments: str, check=True) -> str:
        """Run the `draftledger` command here and return all it says."""
        done = subprocess.run(
            [sys.executable, "-m", "draftledger.cli", *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder / "workflow_scripts")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert (done.returncode == 0) == check, done.stdout
        return done.stdout

    def files(self, suffix: str) -> Iterator[tuple[str, Path]]:
        """Yield every artefact's path under the results with its file of that suffix."""
        for path in sorted(self.results.rglob(f"*{suffix}")):
            yield path.relative_to(self.results).as_posix().removesuffix(suffix), path

    def records(self) -> dict[str, dict]:
        """Return every run record by the artefact's path under the results."""
        return {name: json.loads(path.read_text()) for name, path in self.files(".run.json")}

    def marks(self) -> dict[str, int]:
        """Return the time stamp of every run record: it moves when the job runs, hit or not."""
        return {name: path.stat().st_mtime_ns for name, path in self.files(".run.json")}

    def done_since(self, marks: dict[str, int]) -> tuple[set[str], set[str]]:
        """Return the artefacts computed and those taken from the store since `marks`."""
        records, now = self.records(), self.marks()
        ran = {name for name in records if marks.get(name) != now[name]}
        hits = {name for name in ran if records[name]["hit"]}
        return ran - hits, hits

    def contents(self) -> dict[str, str]:
        """Return every artefact's content digest."""
        return {name: json.loads(path.read_text())["content"] for name, path in self.files(".manifest.json")}

    def recipe(self, name: str) -> dict[str, Any]:
        """Return the recipe of an artefact."""
        return json.loads((self.results / f"{name}.recipe.json").read_text())


def checkout(root: Path, folder: Path, experiment: str = "nano") -> Workspace:
    """Copy the sources as a fresh clone has them: nothing built, every time stamp of now."""
    for name in SOURCES:
        if (root / name).is_dir():
            shutil.copytree(root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(root / name, folder / name)
    for path in folder.rglob("*"):
        os.utime(path)
    return Workspace(folder, experiment)


def _job(block: str) -> str:
    rule = block.split(":", 1)[0]
    found = re.search(r"^    wildcards: (.*)$", block, flags=re.M)
    values = [item.split("=", 1)[1] for item in found[1].split(", ")] if found else []
    return " ".join([rule, *values])
