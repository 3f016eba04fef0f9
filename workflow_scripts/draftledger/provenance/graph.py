"""The artefacts of one results folder as a graph: what each is, how it was made, and from what."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from draftledger.errors import ConfigError
from draftledger.provenance.manifest import Manifest, parse_manifest
from draftledger.provenance.recipe import Recipe, parse_recipe

MANIFEST, RECIPE, RUN = ".manifest.json", ".recipe.json", ".run.json"
RELEASES, RELEASE_RECORD = "release/", "release.json"
HOME_MARKS = ("SHA256SUMS", "environment.json.manifest.json", "summary.parquet.manifest.json")


class Files(Protocol):
    """Files by name: a folder, or the members of an archive."""

    def names(self) -> Iterable[str]:
        """Return every file's name, relative and with forward slashes."""
        ...

    def read(self, name: str) -> bytes:
        """Return one file's bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of one experiment's results: hidden ones, releases, stores and other experiments are left out."""

    root: Path

    def names(self) -> list[str]:
        """Return every file's name under the folder, sorted."""
        names = (path.relative_to(self.root).as_posix() for path in _files(self.root))
        return sorted(name for name in names if not name.startswith(RELEASES))

    def read(self, name: str) -> bytes:
        """Return one file's bytes."""
        return (self.root / name).read_bytes()


def _files(folder: Path) -> Iterable[Path]:
    for path in folder.iterdir():
        if path.is_dir() and not (is_store(path) or is_home(path)):
            yield from _files(path)
        elif path.is_file() and not path.name.startswith("."):
            yield path


def is_store(folder: Path) -> bool:
    """Tell whether a folder is a store: payloads by digest, and the index of recipes."""
    return (folder / "blobs").is_dir() or (folder / "actions").is_dir()


def is_home(folder: Path) -> bool:
    """Tell whether a folder holds the results of one experiment; an unpacked release holds them in a folder below."""
    marked = any((folder / name).is_file() for name in HOME_MARKS)
    return marked and not (folder / RELEASE_RECORD).is_file()


def homes(root: Path) -> list[Path]:
    """Return the results folders at and under `root`, stores left out; `root` itself when it holds none."""
    return list(_homes(root)) or [root]


def one_home(root: Path) -> Path:
    """Return the one results folder at or under `root`; raise ConfigError when there are several, or no folder."""
    if not root.is_dir():
        raise ConfigError(f"{root}: no such folder; name the results with --root")
    found = homes(root)
    if len(found) > 1 and root not in found:
        raise ConfigError(f"{root}: has several results; name one with --root: {', '.join(map(str, found))}")
    return root if root in found else found[0]


def _homes(folder: Path) -> Iterable[Path]:
    if is_home(folder):
        yield folder
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not is_store(path):
            yield from _homes(path)


@dataclass(frozen=True, slots=True)
class Artefact:
    """One payload as its manifest and recipe describe it; `here` tells whether its bytes are here too."""

    role: str
    manifest: Manifest
    recipe: Recipe | None
    draw: int
    here: bool


@dataclass(frozen=True, slots=True)
class Graph:
    """Artefacts by role (the path under the results folder), and the outputs of each job by action key and draw."""

    artefacts: Mapping[str, Artefact]
    outputs: Mapping[tuple[str, int], tuple[Artefact, ...]]


def read_graph(files: Files) -> Graph:
    """Read every manifest and recipe; raise CorruptError at the first that is unreadable."""
    names = set(files.names())
    artefacts = {}
    outputs: dict[tuple[str, int], tuple[Artefact, ...]] = defaultdict(tuple)
    for name in sorted(names):
        if name.endswith(MANIFEST):
            role = name.removesuffix(MANIFEST)
            artefacts[role] = found = _artefact(files, role, names)
            if found.recipe:
                outputs[found.recipe.key, found.draw] += (found,)
    return Graph(artefacts, dict(outputs))


def _artefact(files: Files, role: str, names: set[str]) -> Artefact:
    manifest = parse_manifest(files.read(role + MANIFEST), where=role + MANIFEST)
    if role + RECIPE not in names:
        return Artefact(role, manifest, None, 0, role in names)
    recipe, draw = parse_recipe(files.read(role + RECIPE), where=role + RECIPE)
    return Artefact(role, manifest, recipe, draw, role in names)


def outside(recipe: Recipe, role: str) -> bool:
    """Tell whether an input lies outside the results: under config/, absolute, or at a path that the settings name."""
    named = {text for text in _texts(recipe.spec) if role == text or role.startswith(text.rstrip("/") + "/")}
    return role.startswith(("config/", "/")) or bool(named)


def _texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
