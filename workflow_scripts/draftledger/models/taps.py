"""Taps: the outputs of chosen layers, heard while the model's own forward runs."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from draftledger.errors import ConfigError, UnsupportedError
from draftledger.models.view import module_at, of_kind, with_modules


class Tapped:
    """A target's shallow twin whose chosen layers tell their outputs; masks and caches stay the model's own affair.

    `taps` are indices into the target's layers, from 0; where a model runs its layers several times, the last pass
    counts. Raises ConfigError for an index that is not a layer's, UnsupportedError for a model without layers.
    """

    def __init__(self, model: nn.Module, taps: Sequence[int]) -> None:
        self.model, self.taps, self._sink = model, taps, _Sink()
        paths = layer_paths(model, taps)
        self.twin = with_modules(
            model, {path: _telling(module_at(model, path), self._sink, tap) for tap, path in paths.items()}
        )

    def __call__(self, ids: mx.array, caches: list[Any]) -> tuple[mx.array, mx.array]:
        """Run ids: [1, W] and return logits: [1, W, V] and the taps in the order asked for: [W, taps, D].

        Raises UnsupportedError when a layer told nothing, or no hidden state [1, W, D].
        """
        logits, heard = self.windows(ids, caches)
        return logits, heard[0]

    def windows(self, ids: mx.array, caches: list[Any] | None = None) -> tuple[mx.array, mx.array]:
        """Run ids: [B, W], from their start where no caches are given; return logits [B, W, V] and [B, W, taps, D]."""
        self._sink.outputs = {}
        logits = self.twin(ids, cache=caches)
        heard, self._sink.outputs = self._sink.outputs, {}
        for tap in self.taps:
            if tap not in heard or heard[tap].shape[:-1] != ids.shape:
                told = f"an output of shape {heard[tap].shape}" if tap in heard else "nothing"
                raise UnsupportedError(f"taps: layer {tap} of {type(self.model).__name__} tells {told}; use no taps")
        return logits, mx.stack([heard[tap] for tap in self.taps], axis=2)


def layer_paths(model: nn.Module, taps: Sequence[int]) -> dict[int, str]:
    """Return the dotted path of each tapped layer, wherever the model keeps its layers.

    Raises ConfigError for an index that is not a layer's, UnsupportedError for a model without layers.
    """
    layers = getattr(model, "layers", None)
    if not layers:
        raise UnsupportedError(f"taps: {type(model).__name__} has no layers to tap; use a drafter without taps")
    if odd := [tap for tap in taps if not 0 <= tap < len(layers)]:
        raise ConfigError(f"taps: {odd[0]} is none of the target's layers 0 to {len(layers) - 1}")
    places = {id(module): path for path, module in model.named_modules()}
    return {tap: places[id(layers[tap])] for tap in taps}


class _Sink:
    """Where the tapped layers of one twin leave their outputs during a forward."""

    def __init__(self) -> None:
        self.outputs: dict[int, mx.array] = {}


class _Telling(nn.Module):
    """What a tapped layer does beside its own class: of a tuple the first part is its hidden state."""

    tap_sink: _Sink
    tap_index: int

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        output = super().__call__(*args, **kwargs)
        self.tap_sink.outputs[self.tap_index] = output[0] if isinstance(output, tuple) else output
        return output


@cache
def _telling_kind(kind: type[nn.Module]) -> type[_Telling]:
    return type(kind.__name__, (_Telling, kind), {})


def _telling(layer: nn.Module, sink: _Sink, index: int) -> nn.Module:
    # Still an instance of its class: models ask layers for their kind, by attribute or by class.
    twin = of_kind(layer, _telling_kind(type(layer)))
    twin.tap_sink, twin.tap_index = sink, index
    return twin
