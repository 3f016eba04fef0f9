"""The tiny hybrid target of the tests: three gated-delta layers and one of attention, trained in the pipeline."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import tokenizers
from mlx_lm.models import qwen3_5
from tokenizers import decoders, models, pre_tokenizers, trainers
from tqdm import tqdm

from draftledger.arrays import leaves, number, save_tensors
from draftledger.errors import ConfigError
from draftledger.models.exact import exact
from draftledger.models.folder import placed, write_json
from draftledger.rng import generator, key_of

EOS, EOS_ID = "<|end|>", 0


def byte_tokenizer(texts: Sequence[str], *, vocabulary: int) -> tokenizers.Tokenizer:
    """Return a byte-level BPE of `vocabulary` ids trained on texts; id 0 ends an answer.

    Merges flatten the token frequencies: with single bytes, always guessing a space would pass for drafting.
    """
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return backend


def architecture(spec: dict[str, Any], *, vocabulary: int, eos: int) -> dict[str, Any]:
    """Return the mlx-lm configuration of a hybrid of `layers` layers, the last of every four attending."""
    width, heads = spec["width"], spec["heads"]
    return {
        "model_type": "qwen3_5",
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": spec["layers"],
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 2,
        "head_dim": width // heads,
        "linear_num_key_heads": heads // 2,
        "linear_num_value_heads": heads // 2,
        "linear_key_head_dim": width // heads,
        "linear_value_head_dim": width // heads,
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": spec["attention_every"],
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "max_position_embeddings": 4096,
        "eos_token_id": [eos],
    }


def build_model(config: dict[str, Any], *, seed: int) -> qwen3_5.Model:
    """Return a randomly initialised model; every weight is keyed by (seed, its place)."""
    model = qwen3_5.Model(qwen3_5.ModelArgs.from_dict(config))
    drawn = [
        (name, _initial(name, array, mx.random.key(key_of(seed, name, 0))))
        for name, array in leaves(model.parameters()).items()
    ]
    model.load_weights(drawn)
    return model


def _initial(name: str, array: mx.array, key: mx.array) -> mx.array:
    if name.endswith("A_log"):
        return mx.log(mx.random.uniform(0.5, 8.0, array.shape, key=key))
    if name.endswith(("norm.weight", "layernorm.weight", "dt_bias")):
        return mx.ones(array.shape)
    spread = 1.0 if name.endswith("embed_tokens.weight") else array.shape[-1] ** -0.5
    return spread * mx.random.normal(array.shape, key=key) * (0.5 if name.endswith("conv1d.weight") else 1.0)


def train_model(model: nn.Module, tokens: np.ndarray, *, spec: dict[str, Any]) -> float:
    """Train on a token stream [N] in place with keyed batches and a cosine rate; return the last loss, nats."""
    if tokens.size <= spec["length"] + 1:
        raise ConfigError(f"target: the corpus has {tokens.size} tokens, windows need {spec['length'] + 1}; add text")
    optimiser = optim.AdamW(learning_rate=0.0, betas=[0.9, 0.98], weight_decay=0.01, bias_correction=True)
    step = nn.value_and_grad(model, lambda batch: nn.losses.cross_entropy(model(batch[:, :-1]), batch[:, 1:]).mean())
    loss = mx.array(0.0)
    bar = tqdm(range(spec["steps"]), desc="target", unit="step", mininterval=10)
    for place in bar:
        loss, gradients = step(_batch(tokens, spec, place))
        gradients, _ = optim.clip_grad_norm(gradients, 1.0)
        optimiser.learning_rate = mx.array(_rate(spec, place))
        optimiser.update(model, gradients)
        mx.eval(model.parameters(), optimiser.state, loss)
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
    return number(loss)


def _batch(tokens: np.ndarray, spec: dict[str, Any], number: int) -> mx.array:
    starts = generator(spec["seed"], "target", number).integers(tokens.size - spec["length"], size=spec["batch"])
    return mx.array(np.stack([tokens[s : s + spec["length"] + 1] for s in starts]), dtype=mx.int32)


def _rate(spec: dict[str, Any], number: int) -> float:
    warm = min(1.0, (number + 1) / max(1, spec["steps"] // 10))
    return spec["learning_rate"] * warm * (0.1 + 0.45 * (1 + np.cos(np.pi * number / spec["steps"])))


def write_tiny(texts: Sequence[str], out: Path, *, spec: dict[str, Any]) -> float:
    """Train the tiny target on texts and write it as an mlx-lm folder; return its last training loss, nats."""
    backend = byte_tokenizer(texts, vocabulary=spec["vocabulary"])
    eos = EOS_ID
    config = architecture(spec, vocabulary=spec["vocabulary"], eos=eos)
    model = exact(build_model(config, seed=spec["seed"]))  # its recurrences train faster in chunks
    stream = [token for text in texts for token in (*backend.encode(text).ids, eos)]
    loss = train_model(model, np.array(stream, dtype=np.int32), spec=spec)
    with placed(out) as folder:
        write_json(folder / "config.json", config)
        backend.save(str(folder / "tokenizer.json"))
        write_json(folder / "tokenizer_config.json", {"eos_token": EOS, "eos_token_ids": [eos]})
        save_tensors(folder / "model.safetensors", leaves(model.parameters()), metadata={"format": "mlx"})
    return loss
