"""What goes into a release: the ledger's files as far as level and licences allow, and what explains them."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from draftledger.errors import ConfigError, CorruptError
from draftledger.provenance.atomic import json_bytes
from draftledger.provenance.cover import cover
from draftledger.provenance.crate import NAME as CRATE
from draftledger.provenance.crate import About, metadata
from draftledger.provenance.digest import file_digest
from draftledger.provenance.graph import MANIFEST, RECIPE, Folder, read_graph
from draftledger.provenance.job import Job
from draftledger.provenance.ledger import NAME as SUMS
from draftledger.provenance.ledger import parse_sums
from draftledger.provenance.licences import FOLDER, PROJECT, may_pass_on, read_licences
from draftledger.provenance.packing import weight_licences, why_left_out

SCHEMA = 1
RESULTS, RECORD, CITATION, DOCUMENTS = "results", "release.json", "CITATION.cff", "corpus/documents.parquet"
LOCKS = {"cpu": "cpu", "cuda": "cuda13", "metal": "metal"}

Files = dict[str, Path | bytes]


@dataclass(frozen=True, slots=True)
class Contents:
    """The files of a release by name, bytes or where they lie, and what its record says."""

    files: Files
    record: dict[str, Any]


def gather(job: Job) -> Contents:
    """Collect the files; raise ConfigError for lacking licences, CorruptError for results that are not the ledger's."""
    root, config, release = job.input(SUMS).parent, job.spec["config"], job.spec["release"]
    ledger = parse_sums(job.input(SUMS).read_text())
    own = {role: path for role, path in job.inputs.items() if not path.is_relative_to(root)}
    licences = read_licences(root / DOCUMENTS if DOCUMENTS in ledger else None, own)
    for what, licence in weight_licences(config).items():
        if may_pass_on(licence) and release["level"] != "rows":
            licences.add(str(licence), None, own, what=what)
    left_out, files = {}, {**_around(own, job.input("environment.json")), **licences.texts}
    for name in (*ledger, SUMS, SUMS + MANIFEST, SUMS + RECIPE):
        payload = not name.endswith((MANIFEST, RECIPE))
        reason = why_left_out(name, level=release["level"], config=config, documents=licences.documents)
        if payload and reason:
            left_out[f"{RESULTS}/{name}"] = reason
        else:
            files[f"{RESULTS}/{name}"] = root / name
    record = {
        "schema": SCHEMA,
        "experiment": config["experiment"],
        "version": release["version"],
        "level": release["level"],
        "root_digest": file_digest(root / SUMS),
        **job.spec["checkout"],
        "left_out": left_out,
    }
    files |= {"config.json": json_bytes(config), RECORD: json_bytes(record), "README.md": cover(record)}
    files[CRATE] = _crate(files, record, root=root, cited=_citation(own.get(CITATION)))
    return Contents(files | {SUMS: _sums(files, ledger)}, record)


def _around(own: dict[str, Path], environment: Path) -> Files:
    """Return what comes from the checkout, under its own name; of the locks the one for this environment class."""
    facts = json.loads(environment.read_text())
    arm = "-aarch64" if facts["platform"] == "linux-aarch64" else ""
    lock = f"envs/{LOCKS.get(facts['backend'])}{arm}-py{facts['python'].replace('.', '')}.txt"
    kept = {role: path for role, path in own.items() if not role.startswith((f"{FOLDER}/", "envs/")) or role == lock}
    return {role if _is_inside(role) else f"outside/{path.name}": path for role, path in kept.items()}


def _is_inside(role: str) -> bool:
    return not Path(role).is_absolute() and ".." not in Path(role).parts


def _sums(files: Files, ledger: dict[str, str]) -> bytes:
    """Return the lines of SHA256SUMS over all other files; results must be what the ledger says."""
    found = {name: _digest(source) for name, source in files.items()}
    for name, digest in ledger.items():
        if found.get(f"{RESULTS}/{name}", digest) != digest:
            raise CorruptError(f"{name}: differs from {SUMS}; run the workflow to its end first")
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(found.items())).encode()


def _digest(source: Path | bytes) -> str:
    return hashlib.sha256(source).hexdigest() if isinstance(source, bytes) else file_digest(source)


def _citation(path: Path | None) -> tuple[str, str]:
    """Return the authors' names and the software's version."""
    if path is None:
        raise ConfigError(f"{CITATION}: absent; restore it from version control")
    try:
        cited = yaml.safe_load(path.read_text(encoding="utf-8"))
        return ", ".join(author["name"] for author in cited["authors"]), str(cited["version"])
    except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        told = f"names no authors or no version ({error.__class__.__name__})"
        raise ConfigError(f"{CITATION}: {told}; restore it from version control") from None


def _crate(files: Files, record: dict[str, Any], *, root: Path, cited: tuple[str, str]) -> bytes:
    about = About(
        name=f"draftledger {record['experiment']} {record['version']}",
        description=f"Results of speculative decoding with their provenance; root digest {record['root_digest']}.",
        version=record["version"],
        date=record["date"],
        licence=PROJECT,
        authors=cited[0],
        software=cited[1],
    )
    sizes = {name: len(item) if isinstance(item, bytes) else item.stat().st_size for name, item in files.items()}
    shown = {name: size for name, size in sizes.items() if not name.endswith((MANIFEST, RECIPE))}
    return json_bytes(metadata(about, shown, read_graph(Folder(root)), results=RESULTS))
