"""A drafter's layers: DFlash's, DFlash 2's with its convolutions, and the one made for Gemma 4."""

import mlx.core as mx
import mlx.nn as nn

from draftledger.drafters.context_cache import ContextCache
from draftledger.drafters.dflash_attention import DFlashAttention
from draftledger.drafters.dflash_config import DFlashConfig, DSparkConfig
from draftledger.drafters.dynamic_convolution import DynamicConvolution

Mask = mx.array | str | None


class GatedFeedForward(nn.Module):
    """down(act(gate x) * up x)."""

    def __init__(self, hidden: int, inner: int, *, gelu: bool) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(inner, hidden, bias=False)
        self.activation = nn.gelu_approx if gelu else nn.silu

    def __call__(self, x: mx.array) -> mx.array:
        """Map x: [..., H] to [..., H]."""
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


class DFlashLayer(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        gelu = isinstance(config, DSparkConfig) and config.family == "gemma4"
        self.self_attn = DFlashAttention(config)
        self.mlp = GatedFeedForward(config.hidden_size, config.intermediate_size, gelu=gelu)
        self.input_layernorm, self.post_attention_layernorm = (norm_of(config) for _ in range(2))

    def __call__(self, x: mx.array, context: mx.array, cache: ContextCache, mask: Mask) -> mx.array:
        """Map the block x [1, B, H] over new context features [1, n, H] and those in the cache to [1, B, H]."""
        x = x + self.self_attn(self.input_layernorm(x), context, cache, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class DFlash2Layer(DFlashLayer):
    """Both sublayers between the two sides of a dynamic convolution."""

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__(config)
        size, group = config.conv_kernel_size or 1, config.conv_group_size or 1
        self.attention_conv, self.mlp_conv = (
            DynamicConvolution(config.hidden_size, size=size, group=group) for _ in range(2)
        )

    def __call__(self, x: mx.array, context: mx.array, cache: ContextCache, mask: Mask) -> mx.array:
        """Map the block x [1, B, H] over new context features [1, n, H] and those in the cache to [1, B, H]."""
        rows = self.input_layernorm(x)
        kernels = self.attention_conv.kernels(rows)
        rows = self.self_attn(self.attention_conv.filtered(rows, kernels[:, :, 0]), context, cache, mask)
        x = x + self.attention_conv.filtered(rows, kernels[:, :, 1])
        rows = self.post_attention_layernorm(x)
        kernels = self.mlp_conv.kernels(rows)
        return x + self.mlp_conv.filtered(self.mlp(self.mlp_conv.filtered(rows, kernels[:, :, 0])), kernels[:, :, 1])


class Gemma4Layer(DFlashLayer):
    """Norms on both sides of each sublayer, and one factor on the whole output."""

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__(config)
        self.pre_feedforward_layernorm, self.post_feedforward_layernorm = (norm_of(config) for _ in range(2))
        self.layer_scalar = mx.ones((1,))

    def __call__(self, x: mx.array, context: mx.array, cache: ContextCache, mask: Mask) -> mx.array:
        """Map the block x [1, B, H] over new context features [1, n, H] and those in the cache to [1, B, H]."""
        x = x + self.post_attention_layernorm(self.self_attn(self.input_layernorm(x), context, cache, mask))
        rows = self.mlp(self.pre_feedforward_layernorm(x))
        return (x + self.post_feedforward_layernorm(rows)) * self.layer_scalar


def norm_of(config: DFlashConfig) -> nn.RMSNorm:
    """Return a norm over the hidden size."""
    return nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)


def layer_of(config: DFlashConfig) -> DFlashLayer:
    """Return a new layer of the kind that the settings ask for."""
    if isinstance(config, DSparkConfig) and config.family == "gemma4":
        return Gemma4Layer(config)
    return DFlash2Layer(config) if config.conv_kernel_size else DFlashLayer(config)
