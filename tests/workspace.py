"""A folder with the workflow in it: edit it, ask Snakemake what would run, run it, read what was done."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

CONFIG = ("--configfile", "config/nano.yaml")


class Workspace:
    """A copy of the workflow and perhaps of its results."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.results = folder / "results" / "nano"

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text that stands once in a file."""
        path = self.folder / name
        assert path.read_text().count(old) == 1, f"{old!r} in {name}"
        path.write_text(path.read_text().replace(old, new))

    def snakemake(self, *arguments: str, prefix=(), check=True, **environment: str) -> str:
        """Run Snakemake on the nano experiment and return all it says."""
        command = [*prefix, sys.executable, "-m", "snakemake", "--nocolor", *CONFIG, *arguments]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
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

    def records(self) -> dict[str, dict]:
        """Return every run record by the artefact's path under the results."""
        suffix = ".run.json"
        paths = self.results.rglob(f"*{suffix}")
        return {
            path.relative_to(self.results).as_posix().removesuffix(suffix): json.loads(path.read_text())
            for path in paths
        }

    def marks(self) -> dict[str, int]:
        """Return the time stamp of every run record: it moves when the job runs, hit or not."""
        return {name: (self.results / f"{name}.run.json").stat().st_mtime_ns for name in self.records()}

    def contents(self) -> dict[str, str]:
        """Return every artefact's content digest."""
        suffix = ".manifest.json"
        return {
            path.relative_to(self.results).as_posix().removesuffix(suffix): json.loads(path.read_text())["content"]
            for path in self.results.rglob(f"*{suffix}")
        }


def _job(block: str) -> str:
    rule = block.split(":", 1)[0]
    found = re.search(r"^    wildcards: (.*)$", block, flags=re.M)
    values = [item.split("=", 1)[1] for item in found[1].split(", ")] if found else []
    return " ".join([rule, *values])
