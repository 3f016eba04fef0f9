"""A block drafter put together: its settings, its tensors and the target whose two ends it borrows."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map

from draftledger.drafters.base import Adapter, DraftContext
from draftledger.drafters.dflash_config import DFlashConfig
from draftledger.drafters.dflash_model import DFlashDraftModel
from draftledger.drafters.formats.pairing import check_pair
from draftledger.drafters.formats.read import read
from draftledger.drafters.target_ends import ends_of
from draftledger.errors import ConfigError, UnsupportedError

# Tables and small heads that a few bits would spoil and that cost little as they are.
KEPT = ("kernel_projection", "candidate_selector", "markov_head", "confidence_head")


def load(spec: Mapping[str, Any], path: Path, *, model: nn.Module) -> Adapter:
    """Load a drafter's checkpoint for this target; raise UnsupportedError when it is another kind's or target's."""
    config, tensors = read(path)
    if config.kind != spec["kind"]:
        raise UnsupportedError(f"{path}: is a {config.kind} drafter, the config says {spec['kind']}")
    return adapter(config, tensors, spec=spec, model=model, where=str(path))


def adapter(
    config: DFlashConfig, tensors: Mapping[str, mx.array], *, spec: Mapping[str, Any], model: nn.Module, where: str
) -> Adapter:
    """Return the drafter of these tensors, in the target's dtype or, where `spec` has `bits`, quantised."""
    module = assembled(config, tensors, target=model, where=where)
    if bits := spec.get("bits"):
        quantise(module, bits=bits, group_size=spec.get("group_size", 64))
    module.eval()
    module.freeze()
    mx.eval(module.parameters())
    return Adapter(module, dict(spec), config.target_layer_ids)


def assembled(
    config: DFlashConfig, tensors: Mapping[str, mx.array], *, target: nn.Module, where: str = "drafter"
) -> DFlashDraftModel:
    """Return a drafter's network bound to its target; raise UnsupportedError unless both fit, tensor by tensor."""
    ends = ends_of(target)
    check_pair(config, hidden=ends.hidden, layers=ends.layers, vocabulary=ends.vocabulary, where=where)
    module = DFlashDraftModel(config, own=tuple(tensors)).bind(target)
    try:
        module.load_weights(list(tensors.items()), strict=True)
    except ValueError as error:
        raise UnsupportedError(f"{where}: its tensors are not those of its config: {_first(error)}") from None
    module.update(tree_map(lambda array: _cast(array, ends.dtype), module.parameters()))
    return module


def quantise(module: DFlashDraftModel, *, bits: int, group_size: int) -> None:
    """Replace the large matrices by quantised ones; convolutions, codebooks and the small heads stay as they are.

    Raises ConfigError when a matrix cannot be divided into such groups.
    """

    def large(path: str, part: nn.Module) -> bool:
        return isinstance(part, nn.Linear | nn.Embedding) and not any(name in path for name in KEPT)

    try:
        nn.quantize(module, group_size, bits, class_predicate=large)
    except ValueError as error:
        raise ConfigError(f"drafters: {bits} bits in groups of {group_size} do not fit: {_first(error)}") from None


def module_of(context: DraftContext) -> DFlashDraftModel:
    """Return the network that an arm drafts with; raise ConfigError when its adapter was not given."""
    module = context.adapter and context.adapter.module
    if not isinstance(module, DFlashDraftModel):
        raise ConfigError(f"arm of kind {context.arm['kind']}: it has no drafter; name one of `drafters`")
    return module


def _cast(array: mx.array, dtype: mx.Dtype) -> mx.array:
    return array.astype(dtype) if mx.issubdtype(array.dtype, mx.floating) else array


def _first(error: Exception) -> str:
    return str(error).splitlines()[0]
