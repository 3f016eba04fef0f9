"""A target's two ends, which its drafter borrows: the embedding of token ids and the head that gives logits."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn

from draftledger.errors import UnsupportedError

EMBEDDINGS = ("embed_tokens", "embeddings", "word_embeddings", "wte", "tok_embeddings")
NORMS = ("norm", "norm_f", "final_norm", "embedding_norm", "ln_f")


@dataclass(frozen=True, slots=True)
class TargetEnds:
    """What a drafter takes from its target; the weights stay the target's.

    `embed` maps ids [...] to what the target's first layer receives [..., H]; `head` maps final hidden states
    [..., H] to raw logits [..., V], before any multiplier or soft cap of the target's. `norm` is the weight of the
    target's final norm, null where that is of another kind.
    """

    embed: Callable[[mx.array], mx.array]
    head: Callable[[mx.array], mx.array]
    vocabulary: int
    hidden: int
    layers: int
    norm: mx.array | None = None

    @property
    def dtype(self) -> mx.Dtype:
        """Return the dtype that the target embeds in."""
        return self.embed(mx.array([0])).dtype


def ends_of(model: nn.Module) -> TargetEnds:
    """Return a target's ends; raise UnsupportedError for a model whose embedding is not where models have it."""
    for owner in _trunks(model):
        table = next((owner[name] for name in EMBEDDINGS if isinstance(owner.get(name), nn.Module)), None)
        if table is None:
            continue
        embed = _embedding(model, owner, table)
        hidden = embed(mx.array([0])).shape[-1]
        norm = next((owner[name] for name in NORMS if isinstance(owner.get(name), nn.RMSNorm)), None)
        return TargetEnds(
            embed, _head(model, table), table.weight.shape[0], hidden, len(owner["layers"]), norm and norm.weight
        )
    raise UnsupportedError(f"{type(model).__name__}: no embedding that a drafter could share; use another kind of arm")


def _trunks(model: nn.Module) -> Iterator[Any]:
    """Yield the modules that may hold the embedding, outermost first."""
    yield model
    for name in ("model", "language_model", "backbone", "transformer"):
        if isinstance(model.get(name), nn.Module):
            yield from _trunks(model[name])


def _embedding(model: Any, owner: Any, table: Any) -> Callable[[mx.array], mx.array]:
    whole: Any = getattr(owner, "embed", None)
    if callable(whole) and not isinstance(whole, nn.Module):
        return cast(Callable[[mx.array], mx.array], whole)  # Muse norms its embeddings there
    kind = str(getattr(model, "model_type", None) or getattr(getattr(model, "args", None), "model_type", ""))
    default = table(mx.array([0])).shape[-1] ** 0.5 if kind.startswith("gemma") else 1.0
    scale = float(getattr(owner, "embed_scale", default))
    return table if scale == 1 else lambda ids: table(ids) * scale


def _head(model: Any, table: Any) -> Callable[[mx.array], mx.array]:
    outer = [model, *(model[name] for name in ("language_model",) if name in model)]
    return next((owner["lm_head"] for owner in outer if "lm_head" in owner), table.as_linear)
