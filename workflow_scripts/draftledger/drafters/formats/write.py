"""Write a drafter as others publish it: a folder that appears whole, and that was read back before it did."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mlx.core as mx

from draftledger.arrays import save_tensors
from draftledger.drafters.formats.checkpoint import inspect
from draftledger.drafters.formats.checks import DrafterConfig
from draftledger.drafters.formats.deepspec import deepspec
from draftledger.drafters.formats.speculators import speculators
from draftledger.drafters.formats.zlab import zlab
from draftledger.errors import UnsupportedError
from draftledger.models.folder import placed, write_json
from draftledger.provenance.digest import CONFIG_KEY, canonical_json

Tensors = Mapping[str, mx.array]
NAMES = ("config.json", "model.safetensors")
# What packagings of one family only have, and the layouts that are written cannot say.
UNSAID = {
    "family": "qwen3",
    "gated_query": False,
    "attention_sinks": False,
    "rope_traditional": False,
    "partial_rotary_factor": 1.0,
}


def write_zlab(folder: Path, config: DrafterConfig, tensors: Tensors) -> None:
    """Write a DFlash or DFlash 2 drafter in z-lab's layout; raise UnsupportedError for another kind."""
    _write(folder, config, tensors, zlab)


def write_deepspec(folder: Path, config: DrafterConfig, tensors: Tensors) -> None:
    """Write a DSpark drafter in DeepSpec's layout; raise UnsupportedError for what it has no place for."""
    _write(folder, config, tensors, deepspec)


def write_speculators(folder: Path, config: DrafterConfig, tensors: Tensors, *, verifier: str = "") -> None:
    """Write any block drafter in the layout of vLLM's speculators; `verifier` names the target."""
    _write(folder, config, tensors, lambda kind, settings: speculators(kind, settings, verifier=verifier))


def write_adapter(path: Path, config: DrafterConfig, tensors: Tensors) -> None:
    """Write a drafter as one safetensors file, its configuration in the metadata, for `read` to take back."""
    kind, settings = config.kind, _settings(config)
    described = speculators(kind, settings) if kind == "dspark" else zlab(kind, settings)
    save_tensors(path, tensors, metadata={"format": "mlx", CONFIG_KEY: canonical_json(described).decode()})


def _write(
    folder: Path, config: DrafterConfig, tensors: Tensors, layout: Callable[[str, dict[str, Any]], dict[str, Any]]
) -> None:
    described = layout(config.kind, _settings(config))
    with placed(folder, names=NAMES) as scratch:
        write_json(scratch / "config.json", described)
        save_tensors(scratch / "model.safetensors", tensors, metadata={"format": "pt"})
        inspect(scratch)


def _settings(config: DrafterConfig) -> dict[str, Any]:
    settings = asdict(config)
    if unsaid := [name for name, usual in UNSAID.items() if settings.get(name, usual) not in (usual, None)]:
        raise UnsupportedError(f"export: no layout has a place for {unsaid[0]}; keep the original files")
    return settings
