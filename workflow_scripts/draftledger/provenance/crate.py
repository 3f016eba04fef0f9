"""RO-Crate metadata of a release: its files, and the jobs that made them, as linked data."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from draftledger.provenance.graph import Graph

NAME = "ro-crate-metadata.json"
SPECIFICATION = "https://w3id.org/ro/crate/1.1"
# Its profile for runs of software: each job is an action with what it read and made.
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
SOFTWARE, AUTHORS = "#draftledger", "#authors"
FORMATS = {
    ".cff": "application/yaml",
    ".html": "text/html",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".svg": "image/svg+xml",
    ".tsv": "text/tab-separated-values",
    ".txt": "text/plain",
    ".yaml": "application/yaml",
}

Entity = dict[str, Any]


@dataclass(frozen=True, slots=True)
class About:
    """What the crate says of the whole: `date` is ISO, `licence` an SPDX identifier."""

    name: str
    description: str
    version: str
    date: str
    licence: str
    authors: str
    software: str


def metadata(about: About, sizes: Mapping[str, int], graph: Graph, *, results: str) -> Entity:
    """Return the metadata; `sizes` are bytes by file name, `results` is the folder that the graph's roles lie in."""
    files = [_file(name, size) for name, size in sorted(sizes.items())]
    actions = list(_actions(graph, sizes, results))
    licence = f"https://spdx.org/licenses/{about.licence}"
    root = {
        "@id": "./",
        "@type": "Dataset",
        "conformsTo": _link(PROFILE),
        "name": about.name,
        "description": about.description,
        "version": about.version,
        "datePublished": about.date,
        "license": _link(licence),
        "author": _link(AUTHORS),
        "publisher": _link(AUTHORS),
        "hasPart": _links(file["@id"] for file in files),
        "mentions": _links(action["@id"] for action in actions),
    }
    around = [
        {"@id": NAME, "@type": "CreativeWork", "conformsTo": _link(SPECIFICATION), "about": _link("./")},
        root,
        {"@id": PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"},
        {"@id": licence, "@type": "CreativeWork", "name": about.licence, "url": licence},
        {"@id": AUTHORS, "@type": "Organization", "name": about.authors},
        {"@id": SOFTWARE, "@type": "SoftwareApplication", "name": "draftledger", "softwareVersion": about.software},
    ]
    return {"@context": f"{SPECIFICATION}/context", "@graph": [*around, *files, *actions]}


def _link(target: str) -> Entity:
    return {"@id": target}


def _links(targets: Iterable[str]) -> Entity | list[Entity]:
    """Return references to several things; one alone is no list, as the specification recommends."""
    found = [_link(target) for target in targets]
    return found[0] if len(found) == 1 else found


def _file(name: str, size: int) -> Entity:
    kind = FORMATS.get(PurePosixPath(name).suffix, "application/octet-stream")
    return {"@id": quote(name), "@type": "File", "name": name, "contentSize": str(size), "encodingFormat": kind}


def _actions(graph: Graph, sizes: Mapping[str, int], results: str) -> list[Entity]:
    """Return one action a job that has an output here, with its inputs that are here."""
    found = []
    for (key, draw), outputs in sorted(graph.outputs.items()):
        recipe = outputs[0].recipe
        made = [f"{results}/{output.role}" for output in outputs]
        read = [name for item in (recipe.inputs if recipe else ()) for name in (item.role, f"{results}/{item.role}")]
        if result := [quote(name) for name in sorted(made) if name in sizes]:
            rule = recipe.rule if recipe else "unknown"
            action = {"@id": f"#{key}-{draw}", "@type": "CreateAction", "name": rule, "agent": _link(AUTHORS)}
            sources = _links(quote(name) for name in read if name in sizes)
            told = {"description": f"Rule {rule}, recipe {key}, draw {draw}", "instrument": _link(SOFTWARE)}
            found.append({**action, **told, "object": sources, "result": _links(result)})
    return found
