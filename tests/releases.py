"""Releases of results made by hand, and tar files made block by block."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from draftledger.corpus.document import Document, documents_table
from draftledger.provenance.digest import canonical_json, content_digest
from draftledger.provenance.job import run_job
from draftledger.provenance.release import make_release, with_archive
from draftledger.provenance.tables import write_table
from forge import Home, table

CODE = "c" * 64
CITATION = "version: 1.2.3\nauthors:\n  - name: The authors\n"
CLEAN = {"commit": "1" * 40, "date": "2026-01-02", "dirty": []}
CONFIG = {"experiment": "nano", "target": {"kind": "tiny"}, "drafters": {"lora": {"kind": "block_lora"}}}
DOCUMENTS = [
    Document("p==1/a.py", "one", "p==1", "sha256:00", "BSD-3-Clause", "Copyright p"),
    Document("p==1/b.py", "two", "p==1", "sha256:00", "BSD-3-Clause", "Copyright p"),
    Document("synthetic/0", "three", "synthetic", "seed 1", "Apache-2.0"),
]
AROUND = {
    "LICENSE": "Apache text\n",
    "CITATION.cff": CITATION,
    "config/decision.yaml": "rules: 1\n",
    "config/prompts/p.jsonl": "{}\n",
    "envs/cpu-py311.txt": "numpy==1\n",
    "envs/metal-py311.txt": "numpy==1\n",
}


class Desk:
    """A checkout with results of every kind of artefact, ready to be released."""

    def __init__(self, folder: Path, documents=tuple(DOCUMENTS), around: Mapping[str, str] = AROUND):
        self.folder = folder
        for role, text in around.items():
            (folder / role).parent.mkdir(parents=True, exist_ok=True)
            (folder / role).write_text(text)
        self.around = sorted(around)
        self.home = Home(folder / "results" / "nano")
        self._results(documents)

    def _results(self, documents) -> None:
        home = self.home
        facts = {"platform": "linux-x86_64", "backend": "cpu", "python": "3.11"}
        home.add("environment.json", json.dumps(facts), rule="environment", code=CODE)
        write_table(documents_table(documents, counts=Counter()), self.folder / "documents.parquet")
        text = (self.folder / "documents.parquet").read_bytes()
        home.add("corpus/documents.parquet", text, rule="corpus", code=CODE)
        weights = (2).to_bytes(8, "little") + b"{}"
        home.add("model/model.safetensors", weights, rule="model", code=CODE, reads=["corpus/documents.parquet"])
        read = ["model/model.safetensors", "environment.json"]
        home.add("adapters/lora/seed1-launch0/adapter.safetensors", weights, rule="adapter", code=CODE, reads=read)
        outside = {"config/prompts/p.jsonl": content_digest(self.folder / "config/prompts/p.jsonl")}
        read = ["adapters/lora/seed1-launch0/adapter.safetensors", *read]
        home.add("decode/lora/seed1-launch0/rounds.parquet", table(x=[1]), code=CODE, reads=read, outside=outside)
        outside = {"config/decision.yaml": content_digest(self.folder / "config/decision.yaml")}
        read = ["decode/lora/seed1-launch0/rounds.parquet"]
        home.add("summary.parquet", table(metric=["m"]), rule="summary", code=CODE, reads=read, outside=outside)
        home.add("report.html", "<html></html>", rule="report", code=CODE, reads=["summary.parquet"])
        home.ledger()

    def release(self, *, level="rows", config=None, checkout=None, code=CODE, **release: Any) -> int:
        """Run the job in the working folder, which must be the desk's; return its exit code."""
        release = {"level": level, "version": "1.0", "allow_dirty": False, **release}
        spec = {"release": release, "config": {**CONFIG, **(config or {})}, "checkout": checkout or CLEAN}
        payloads = [path for path in sorted(self.home.folder.rglob("*")) if path.is_file()]
        inputs = [path for path in payloads if not path.name.endswith((".recipe.json", ".run.json", ".tar"))]
        roots = ["--root", "results/nano", "--store", "results/store"]
        record = f"results/nano/release/{release['version']}.json"
        inside = [str(path.relative_to(self.folder)) for path in inputs if path.parent.name != "release"]
        names = ["release.py", *inside, *self.around]
        call = [*roots, "--spec", canonical_json(spec).decode(), "--code", code, "--input", *names]
        return run_job(make_release, argv=with_archive([*call, "--output", record, f"{record}.manifest.json"]))

    @property
    def archive(self) -> Path:
        """Return the one archive there is."""
        (found,) = (self.home.folder / "release").glob("*.tar")
        return found
