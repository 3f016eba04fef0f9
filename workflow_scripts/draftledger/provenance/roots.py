"""What pins the bytes that a recipe brings in from outside: packages, hub commits, seeds, versions."""

from collections.abc import Iterator
from typing import Any

from draftledger.provenance.recipe import Recipe


def pins(recipe: Recipe) -> list[str]:
    """Return what a recipe's settings pin, one line each; empty when everything comes through its inputs."""
    spec = recipe.spec
    sources = spec.get("sources", [spec])
    adapter = spec["adapter"] if isinstance(spec.get("adapter"), dict) else {}
    lines = [line for block in [*sources, adapter] for line in _published(block)]
    match recipe.rule:
        case "environment":
            found = spec.get("software", {})
            lines.append(", ".join(f"{name} {version}" for name, version in sorted(found.items()) if version))
        case "corpus":
            lines += [f"generated here, seed {made['seed']}" for made in sources if made.get("kind") == "synthetic"]
        case "model" if spec.get("kind") == "tiny":
            lines.append(f"first weights drawn here, seed {spec.get('seed')}")
        case "continuations":
            lines.append(f"questions and samples, seed {spec.get('seed')}")
        case "adapter":
            lines.append(f"training seed {spec.get('seed')}, launch {spec.get('launch')}")
    return [line for line in lines if line]


def _published(block: dict[str, Any]) -> Iterator[str]:
    sha256 = f" sha256:{block['sha256']}" if "sha256" in block else ""
    if "package" in block:
        yield f"{block['package']}{sha256}" + (f" ({block['member']})" if "member" in block else "")
    elif "repo" in block:
        yield f"{block['repo']}@{block.get('revision')}{sha256}"
    elif "path" in block and sha256:
        yield f"{block['path']}{sha256}"
