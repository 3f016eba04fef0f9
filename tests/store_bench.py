"""A stage on two small files, for tests of the store."""

import os
from pathlib import Path

from draftledger.provenance.manifest import read_manifest, verified
from draftledger.provenance.recipe import Input, Recipe
from draftledger.provenance.stage import Stage, stage
from draftledger.provenance.store import Store


class Bench:
    """A results folder with a store, and a stage that writes one or two files and counts its computations."""

    def __init__(self, root: Path, *, store: Path | None = None):
        self.root, self.store, self.computed = root, Store(store or root / "store"), 0

    def run(self, text="payload", *, nature="repeatable", spec=1, inputs=(), name="a.txt", refresh=False, fail=False):
        outputs = (self.root / name, self.root / f"second-{name}")
        recipe = Recipe("rule", {"spec": spec}, "code", None, tuple(Input(*item) for item in inputs))

        def compute(folder: Path, partial: Path) -> None:
            self.computed += 1
            self.found = sorted(path.name for path in partial.iterdir())
            (partial / "checkpoint").write_text("half")
            if fail:
                raise ValueError("stopped")
            for output in outputs:
                (folder / output.name).write_text(f"{text} of {output.name}")

        return stage(Stage(recipe, outputs, nature), compute, store=self.store, refresh=refresh)

    def text(self, name="a.txt") -> str:
        verified(self.root / name)
        return (self.root / name).read_text()

    def blob(self, name="a.txt") -> Path:
        return self.store.blob(read_manifest(self.root / name).sha256)

    def leftovers(self) -> list[Path]:
        """Return scratch folders, temporary files and unfinished jobs."""
        scratch = [*(self.store.root / "scratch").glob("*"), *(self.store.root / "partial").glob("*")]
        return scratch + list(self.root.rglob("*.tmp"))


def damage(path: Path) -> None:
    """Flip one bit without changing size or time stamp."""
    seen, data = path.stat(), path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
