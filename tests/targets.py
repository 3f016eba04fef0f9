"""Small random targets from mlx-lm's own classes whose greedy answers vary, for tests of exactness."""

from functools import cache

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import llama

from draftledger.decoding.loop import Limits, decode
from draftledger.drafters.ar import Silent
from draftledger.models.state import TargetState
from draftledger.models.tiny import architecture, build_model

VOCABULARY = 96
SPEC = {"width": 32, "heads": 4, "layers": 4, "attention_every": 4}


@cache
def hybrid() -> nn.Module:
    """Three gated-delta layers and one of attention, untied head."""
    model = build_model(architecture(SPEC, vocabulary=VOCABULARY, eos=VOCABULARY - 1), seed=3)
    model.eval()
    mx.eval(model.parameters())
    return model


@cache
def dense(tied: bool = False) -> nn.Module:
    """Two layers of attention with grouped keys."""
    mx.random.seed(5)
    model = llama.Model(
        llama.ModelArgs(
            model_type="llama",
            hidden_size=32,
            num_hidden_layers=2,
            intermediate_size=64,
            num_attention_heads=4,
            num_key_value_heads=2,
            rms_norm_eps=1e-6,
            vocab_size=VOCABULARY,
            tie_word_embeddings=tied,
        )
    )
    model.update_modules({})
    model.eval()
    scaled = {name: value * 6 for name, value in _flat(model).items() if "proj" in name or "embed" in name}
    model.load_weights(list(scaled.items()), strict=False)
    mx.eval(model.parameters())
    return model


def _flat(model: nn.Module) -> dict[str, mx.array]:
    from mlx.utils import tree_flatten

    return dict(tree_flatten(model.parameters()))


def prompt(length: int = 9, key: int = 0) -> mx.array:
    """A random prompt [length] int32."""
    return mx.random.randint(0, VOCABULARY, (length,), dtype=mx.int32, key=mx.random.key(key))


def greedy(model: nn.Module, ids: mx.array, count: int, eos: frozenset[int] = frozenset()) -> list[int]:
    """The autoregressive answer of our loop."""
    rounds = decode(TargetState(model), Silent(), ids, k=0, limits=Limits(count, eos))
    return [token for result in rounds for token in result.committed]


def naive(model: nn.Module, ids: mx.array, count: int) -> list[int]:
    """The answer by whole forward passes without any cache: the independent reference."""
    tokens = ids.tolist()
    for _ in range(count):
        tokens.append(int(mx.argmax(model(mx.array([tokens]))[0, -1]).item()))
    return tokens[ids.size :]
