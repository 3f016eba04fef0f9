"""Exchange a model's recurrent layers for those that can go back to any token of a block, and back again."""

from functools import cache

import mlx.nn as nn

from draftledger.models.recurrent import GatedDelta, KimiDelta, Mamba2, NextGatedDelta, Recurrent, ShortConv
from draftledger.models.view import of_kind, with_modules

# By name: a model's module is imported when the model is. Layers of other classes are run again where rolled back.
_KINDS: dict[str, type[Recurrent]] = {
    "mlx_lm.models.qwen3_5.GatedDeltaNet": GatedDelta,
    "mlx_lm.models.qwen3_next.Qwen3NextGatedDeltaNet": NextGatedDelta,
    "mlx_lm.models.kimi_linear.KimiDeltaAttention": KimiDelta,
    "mlx_lm.models.nemotron_h.NemotronHMamba2Mixer": Mamba2,
    "mlx_lm.models.mamba2.Mamba2Block": Mamba2,
    "mlx_lm.models.granitemoehybrid.GraniteMoeHybridMamba2Mixer": Mamba2,
    "mlx_lm.models.falcon_h1.FalconH1Mixer": Mamba2,
    "mlx_lm.models.plamo2.Mamba": Mamba2,
    "mlx_lm.models.lfm2.ShortConv": ShortConv,
    "mlx_lm.models.lfm2_moe.ShortConv": ShortConv,
}


def exact(model: nn.Module) -> nn.Module:
    """Return the model's twin whose known recurrent layers note what a rollback needs; weights and names are shared.

    A model without such layers is returned as it is, so is a twin.
    """
    kinds = {path: (module, _exact_kind(type(module))) for path, module in model.named_modules()}
    return with_modules(model, {path: of_kind(module, kind) for path, (module, kind) in kinds.items() if kind})


def plain(model: nn.Module) -> nn.Module:
    """Return the model's twin with mlx-lm's own recurrent layers; one that has no others is returned as it is."""
    return with_modules(
        model,
        {
            path: of_kind(module, type(module).__bases__[1])
            for path, module in model.named_modules()
            if isinstance(module, Recurrent)
        },
    )


@cache
def _exact_kind(kind: type[nn.Module]) -> type[nn.Module] | None:
    recurrent = _KINDS.get(f"{kind.__module__}.{kind.__qualname__}")
    return recurrent and type(kind.__name__, (recurrent, kind), {})
