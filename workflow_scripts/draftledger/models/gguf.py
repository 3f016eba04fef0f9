"""Turn a llama-architecture GGUF into an mlx-lm Llama folder in float32."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, ReaderTensor, TokenType
from gguf.quants import dequantize
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE

from draftledger.errors import SourceError, UnsupportedError
from draftledger.models.folder import Tensor, write_json, write_safetensors

_REQUIRED = object()
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# Any other llama.* key changes the computation (experts, rope scaling, windows), so it is refused.
_KNOWN_KEYS = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.freq_base",
    "rope.dimension_count",
    "vocab_size",
}
_DIGITS = pre_tokenizers.Digits
_PRE_TOKENIZERS: dict[str, list[Any]] = {
    "smollm": [partial(_DIGITS, individual_digits=True)],
    "gpt-2": [],
}


def convert(path: Path, folder: Path) -> None:
    """Write config.json, model.safetensors, tokenizer.json and tokenizer_config.json into an existing folder.

    Everything is checked before the first byte is written.
    Raises SourceError for a broken file, UnsupportedError naming the key or tensor that is not handled.
    """
    reader = open_gguf(path)
    meta = Metadata(reader)
    config = model_config(meta, {tensor.name for tensor in reader.tensors})
    tensors = model_tensors(reader.tensors, config)
    tokenizer = build_tokenizer(meta)
    settings = tokenizer_settings(meta, tokenizer)
    write_json(folder / "config.json", config)
    write_json(folder / "tokenizer_config.json", settings)
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    write_safetensors(folder / "model.safetensors", tensors)


def open_gguf(path: Path) -> GGUFReader:
    """Map a GGUF file; raises SourceError when it is absent, cut or something else."""
    try:
        return GGUFReader(path)
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise SourceError(f"{path}: not a complete GGUF file: {error}; fetch it again") from error


class Metadata:
    """GGUF key-values; a missing or mistyped key raises UnsupportedError naming it."""

    def __init__(self, reader: GGUFReader) -> None:
        self._fields = reader.fields

    def __iter__(self):
        return iter(self._fields)

    def get(self, key: str, default: Any = _REQUIRED) -> Any:
        """The value of a key; without a default the key must be there."""
        field = self._fields.get(key)
        if field is not None:
            return field.contents()
        if default is _REQUIRED:
            raise UnsupportedError(f"GGUF key {key} is missing")
        return default


def model_config(meta: Metadata, tensor_names: set[str]) -> dict:
    """The mlx-lm Llama configuration that the metadata describes."""
    _refuse_unknown(meta)
    heads = meta.get("llama.attention.head_count")
    width = meta.get("llama.embedding_length")
    head_dim = meta.get("llama.attention.key_length", width // heads)
    for key in ("llama.attention.value_length", "llama.rope.dimension_count"):
        if meta.get(key, head_dim) != head_dim:
            raise UnsupportedError(f"GGUF key {key} is {meta.get(key)}, only {head_dim} (a whole head) works")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "num_hidden_layers": meta.get("llama.block_count"),
        "intermediate_size": meta.get("llama.feed_forward_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": meta.get("llama.attention.head_count_kv", heads),
        "head_dim": head_dim,
        "rms_norm_eps": meta.get("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": meta.get("llama.rope.freq_base", 10000.0),
        "max_position_embeddings": meta.get("llama.context_length"),
        "vocab_size": len(meta.get("tokenizer.ggml.tokens")),
        "tie_word_embeddings": "output.weight" not in tensor_names,
        "bos_token_id": meta.get("tokenizer.ggml.bos_token_id", None),
        "eos_token_id": meta.get("tokenizer.ggml.eos_token_id"),
        "torch_dtype": "float32",
    }


def _refuse_unknown(meta: Metadata) -> None:
    architecture = meta.get("general.architecture")
    if architecture != "llama":
        raise UnsupportedError(f"GGUF key general.architecture is {architecture}; only llama is converted")
    for key in meta:
        if key.startswith("llama.") and key.removeprefix("llama.") not in _KNOWN_KEYS:
            raise UnsupportedError(f"GGUF key {key} is not handled; use a plain Llama without it")


def model_tensors(tensors: Iterable[ReaderTensor], config: dict) -> dict[str, Tensor]:
    """The tensors by their mlx-lm names, dequantised to float32 when read.

    Raises UnsupportedError for a tensor or shape that the configuration does not call for, or one missing.
    """
    shapes = _expected_shapes(config)
    found: dict[str, Tensor] = {}
    for tensor in tensors:
        name = _mlx_name(tensor.name)
        shape = tuple(int(n) for n in reversed(tensor.shape))
        if shapes.get(name) != shape:
            raise UnsupportedError(f"GGUF tensor {tensor.name} {list(shape)} is not part of this Llama")
        heads = _rope_heads(name, config)
        found[name] = Tensor("F32", shape, 4 * int(np.prod(shape)), partial(_float32, tensor, heads))
    if missing := sorted(shapes.keys() - found.keys()):
        raise UnsupportedError(f"GGUF lacks {len(missing)} tensors, first {missing[0]}")
    return found


def _mlx_name(name: str) -> str:
    stem, _, suffix = name.rpartition(".")
    if stem in _TOP:
        return f"{_TOP[stem]}.{suffix}"
    block, _, rest = stem.removeprefix("blk.").partition(".")
    return f"model.layers.{block}.{_LAYER.get(rest, rest)}.{suffix}"


def _expected_shapes(config: dict) -> dict[str, tuple[int, ...]]:
    width, hidden, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    q, kv = (config[key] * config["head_dim"] for key in ("num_attention_heads", "num_key_value_heads"))
    layer = {
        "attn_norm": (width,),
        "attn_q": (q, width),
        "attn_k": (kv, width),
        "attn_v": (kv, width),
        "attn_output": (width, q),
        "ffn_norm": (width,),
        "ffn_gate": (hidden, width),
        "ffn_up": (hidden, width),
        "ffn_down": (width, hidden),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocab, width),
        "model.norm.weight": (width,),
    }
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, width)
    for index in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{index}.{_LAYER[key]}.weight": shape for key, shape in layer.items()}
    return shapes


def _rope_heads(name: str, config: dict) -> int | None:
    if name.endswith("q_proj.weight"):
        return config["num_attention_heads"]
    return config["num_key_value_heads"] if name.endswith("k_proj.weight") else None


def _float32(tensor: ReaderTensor, heads: int | None) -> bytes:
    weight = dequantize(tensor.data, tensor.tensor_type).astype("<f4", copy=False)
    return np.ascontiguousarray(weight if heads is None else unpermute(weight, heads)).tobytes()


def unpermute(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a q or k projection from llama.cpp's order (rotated pairs adjacent) to halves.

    weight: [heads * head_dim, width]. GGUF row 2i + j of a head is row i + j * head_dim / 2 here.
    """
    rows, width = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)


def build_tokenizer(meta: Metadata) -> Tokenizer:
    """The byte-level BPE tokenizer of the metadata.

    Raises UnsupportedError for another tokenizer model or pre-tokenizer, or an inconsistent vocabulary.
    """
    kind, pre = meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre")
    if kind != "gpt2" or pre not in _PRE_TOKENIZERS:
        raise UnsupportedError(f"GGUF tokenizer {kind}/{pre}: only gpt2 with {', '.join(_PRE_TOKENIZERS)}")
    tokens, types = meta.get("tokenizer.ggml.tokens"), meta.get("tokenizer.ggml.token_type")
    vocab = {token: index for index, token in enumerate(tokens)}
    if len(vocab) != len(tokens) or len(types) != len(tokens):
        raise UnsupportedError("GGUF key tokenizer.ggml.tokens repeats a token, or its types do not match it")
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=_merges(meta, vocab)))
    splitters = [make() for make in _PRE_TOKENIZERS[pre]]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splitters, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(_added(tokens, types, TokenType.CONTROL))
    tokenizer.add_tokens(_added(tokens, types, TokenType.USER_DEFINED))
    if meta.get("tokenizer.ggml.add_bos_token", False):
        bos = meta.get("tokenizer.ggml.bos_token_id")
        pair = (tokens[bos], bos)
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{pair[0]} $A", pair=f"{pair[0]} $A {pair[0]} $B", special_tokens=[pair]
        )
    return tokenizer


def _merges(meta: Metadata, vocab: dict[str, int]) -> list[tuple[str, str]]:
    merges = []
    for rule in meta.get("tokenizer.ggml.merges"):
        left, _, right = rule.partition(" ")
        if not {left, right, left + right} <= vocab.keys():
            raise UnsupportedError(f"GGUF key tokenizer.ggml.merges: {rule!r} is not in the vocabulary")
        merges.append((left, right))
    return merges


def _added(tokens: list[str], types: list[int], kind: TokenType) -> list[AddedToken]:
    chosen = (token for token, its in zip(tokens, types, strict=True) if its == kind)
    return [AddedToken(token, special=kind == TokenType.CONTROL, normalized=False) for token in chosen]


def tokenizer_settings(meta: Metadata, tokenizer: Tokenizer) -> dict:
    """tokenizer_config.json: special tokens, every id that ends an answer, and the chat template if any."""
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": meta.get("tokenizer.ggml.add_bos_token", False),
        "clean_up_tokenization_spaces": False,
        "model_max_length": meta.get("llama.context_length"),
    }
    for short, key in names.items():
        index = meta.get(f"tokenizer.ggml.{key}_token_id", None)
        if index is not None:
            settings[f"{short}_token"] = tokenizer.id_to_token(index)
    ends = [meta.get(f"tokenizer.ggml.{key}_token_id", None) for key in ("eos", "eot", "eom")]
    settings["eos_token_ids"] = sorted({end for end in ends if end is not None})
    template = meta.get("tokenizer.chat_template", None)
    return settings if template is None else {**settings, "chat_template": template}
