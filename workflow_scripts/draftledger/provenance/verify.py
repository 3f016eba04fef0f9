"""Check results without a workflow: every payload against its manifest, every recipe against its key and inputs."""

from dataclasses import dataclass
from pathlib import Path

from draftledger.errors import CorruptError
from draftledger.provenance.manifest import describe, manifest_path, read_manifest, verified
from draftledger.provenance.recipe import read_recipe

SUFFIX = ".manifest.json"


@dataclass(frozen=True, slots=True)
class Verified:
    """How many artefacts were checked, and which are altered with the reason."""

    checked: int
    altered: tuple[tuple[str, str], ...]


def verify(root: Path) -> Verified:
    """Re-hash every payload under `root` that has a manifest and compare each recipe's inputs with what lies there."""
    payloads = sorted(path.with_name(path.name.removesuffix(SUFFIX)) for path in root.rglob(f"*{SUFFIX}"))
    payloads = [path for path in payloads if "store" not in path.relative_to(root).parts[:1]]
    altered = [(str(path), reason) for path in payloads if (reason := _fault(path))]
    return Verified(len(payloads), tuple(altered))


def _fault(payload: Path) -> str | None:
    try:
        manifest = verified(payload)
        if describe(payload) != manifest:
            return f"{manifest_path(payload).name} does not describe it"
        recipe, _ = read_recipe(payload)
        for item in recipe.inputs:
            found = _beside(payload, item.role)
            if found and read_manifest(found).content != item.content:
                return f"made from another {item.role}; run its rule again"
    except CorruptError as error:
        return str(error)
    return None


def _beside(payload: Path, role: str) -> Path | None:
    """Return the input of that role in the same experiment's results, if it is there."""
    home = next((parent for parent in payload.parents if (parent / "environment.json").is_file()), payload.parent)
    return home / role if manifest_path(home / role).is_file() else None
