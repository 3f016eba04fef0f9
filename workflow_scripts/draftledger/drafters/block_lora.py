"""Block-diffusion drafting by the target itself: a LoRA that only noise rows pass through (release A; Uno)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn

from draftledger.arrays import load_tensors
from draftledger.decoding.sampling import Sampling, distribution, draw, uniforms
from draftledger.drafters.base import LONGEST, Adapter, DraftContext, Proposal
from draftledger.errors import ConfigError, UnsupportedError
from draftledger.models.state import TargetState
from draftledger.models.view import module_at, with_modules
from draftledger.rng import noise_ids

INITIAL_SD = 0.01


class GatedLinear(nn.Module):
    """A frozen linear layer plus a low-rank update on the rows from `first` on: y = Wx + scale·(xA)B.

    a: [in, r] float32, b: [r, out] float32; x: [..., rows, in]. Rows before `first` never meet the update.
    """

    def __init__(self, base: nn.Module, a: mx.array, b: mx.array, *, scale: float, first: int) -> None:
        super().__init__()
        self.base, self.a, self.b = base, a, b
        self.scale, self.first = scale, first

    def __call__(self, x: mx.array) -> mx.array:
        """Map x: [..., rows, in] to [..., rows, out] in the base layer's dtype."""
        y = self.base(x)
        update = self.scale * ((x[..., self.first :, :].astype(mx.float32) @ self.a) @ self.b)
        gated = y[..., self.first :, :] + update.astype(y.dtype)
        return mx.concatenate([y[..., : self.first, :], gated], axis=-2) if self.first else gated


def adapted_paths(model: nn.Module, modules: Sequence[str]) -> list[str]:
    """Return the dotted paths of every linear layer whose last name is in `modules`, in the model's order."""
    found = [path for path, module in model.named_modules() if path.split(".")[-1] in modules and _is_linear(module)]
    absent = set(modules) - {path.split(".")[-1] for path in found}
    if absent:
        raise ConfigError(f"drafters: modules {sorted(absent)} are not in the target; check its layer names")
    return sorted(found)


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | nn.QuantizedLinear)


def initial_weights(model: nn.Module, *, modules: Sequence[str], rank: int, key: mx.array) -> dict[str, mx.array]:
    """Return fresh adapter weights by name: A from N(0, 0.01²), B zero, so the adapter starts as a no-op."""
    weights, paths = {}, adapted_paths(model, modules)
    for path, part in zip(paths, mx.random.split(key, len(paths)), strict=True):
        rows, columns = _shape(module_at(model, path))
        weights[f"{path}.lora_a"] = INITIAL_SD * mx.random.normal((columns, rank), key=part)
        weights[f"{path}.lora_b"] = mx.zeros((rank, rows))
    return weights


def _shape(module: nn.Module) -> tuple[int, int]:
    rows, columns = cast(mx.array, module.weight).shape
    return (rows, columns * 32 // module.bits) if isinstance(module, nn.QuantizedLinear) else (rows, columns)


def gated(model: nn.Module, weights: Mapping[str, mx.array], *, scale: float, first: int) -> nn.Module:
    """Return the target's twin in which rows from `first` on pass through the adapter; the target stays bare.

    Raises UnsupportedError when a tensor is missing, left over, or shaped for another target.
    """
    paths = {name.rsplit(".", 1)[0] for name in weights}
    twins: dict[str, nn.Module] = {}
    for path in sorted(paths):
        base, a, b = module_at(model, path), weights.get(f"{path}.lora_a"), weights.get(f"{path}.lora_b")
        if a is None or b is None or len(weights) != 2 * len(paths):
            raise UnsupportedError(f"adapter: {path} needs exactly lora_a and lora_b; is this a block-LoRA adapter?")
        if (b.shape[1], a.shape[0]) != _shape(base) or a.shape[1] != b.shape[0]:
            raise UnsupportedError(f"adapter: {path} has shapes {a.shape}, {b.shape}, not those of this target")
        twins[path] = GatedLinear(base, a, b, scale=scale, first=first)
    return with_modules(model, twins)


class BlockLora:
    """Drafts a whole block in one pass: the anchor row gives the target's own token, each noise row a guess.

    With `sampling` each is a draw from its row's distribution, filtered as the target's is.
    """

    free = 1
    silent = False

    def __init__(
        self,
        state: TargetState,
        adapter: Adapter | None,
        *,
        noise: int,
        bound: int,
        sampling: Sampling | None = None,
    ) -> None:
        self.state, self.noise, self.bound, self.sampling = state, noise, bound, sampling
        self.model = adapter.module if adapter else state.model
        self.block = adapter.spec.get("k", LONGEST) if adapter else LONGEST

    def append_context(self, ids: Sequence[int], taps: mx.array | None = None) -> None:
        """Nothing to hear: the context is the target's own cache."""

    def propose(self, anchor: mx.array, k: int, *, step: int) -> Proposal:
        """Run [anchor, k noise rows] on the target's caches, undo it, and propose each row's argmax or draw."""
        noise = noise_ids(self.noise, step, shape=(k,), bound=self.bound)
        logits = self.state.run_block(mx.concatenate([anchor, noise]), model=self.model)
        self.state.rollback()
        if self.sampling is None:
            return Proposal(mx.argmax(logits, axis=-1).astype(mx.int32), forwards=1)
        q = distribution(logits, self.sampling)
        return Proposal(draw(q, uniforms(self.sampling, "draft", step, rows=k + 1)), q=q, forwards=1)


def load(spec: dict[str, Any], path: Path, *, model: nn.Module) -> Adapter:
    """Load an adapter file for this target; raise UnsupportedError for one of another target."""
    weights = load_tensors(path)
    adapter = _adapter(spec, weights, model)
    if left := [name for name in adapted_paths(model, spec["modules"]) if f"{name}.lora_a" not in weights]:
        raise UnsupportedError(f"{path}: has no weights for {left[0]}; it was made for another target")
    return adapter


def untrained(spec: dict[str, Any], *, model: nn.Module) -> Adapter:
    """Return the control: a fresh adapter of the same shape, which changes nothing."""
    weights = initial_weights(model, modules=spec["modules"], rank=spec["rank"], key=mx.random.key(0))
    return _adapter(spec, weights, model)


def _adapter(spec: dict[str, Any], weights: dict[str, mx.array], model: nn.Module) -> Adapter:
    mx.eval(weights)
    return Adapter(gated(model, weights, scale=spec["scale"], first=1), spec)


def build(context: DraftContext) -> BlockLora:
    """Build the drafter; without an adapter it is the untrained control."""
    return BlockLora(
        context.state,
        context.adapter,
        noise=context.noise,
        bound=context.arm["noise_bound"],
        sampling=context.sampling,
    )


def check_noise_bound(bound: int, *, vocabulary: int) -> None:
    """Raise ConfigError when noise ids could lie outside the target's vocabulary."""
    if bound > vocabulary:
        raise ConfigError(f"drafters: noise_bound {bound} exceeds the target's {vocabulary} ids; lower it")
