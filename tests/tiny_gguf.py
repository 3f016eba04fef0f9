"""A two-layer Llama in GGUF with a byte-level vocabulary, and a slow reading of both in plain NumPy."""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import regex
from gguf import GGMLQuantizationType as Q

WIDTH, HIDDEN, HEADS, KV_HEADS, LAYERS = 64, 96, 4, 2, 2
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MERGES = ["t h", "th e", "Ġ the", "i n", "in g", "Ġ a", "e r", "Ġ Ġ", "ĠĠ ĠĠ", "r e", "re t", "ret u", "retu r"]
MERGES += ["retur n", "1 2", "Ċ Ċ", "' s", "å ½", "ð Ł", "o n", "Ġ =", "( )"]


def byte_characters() -> list[str]:
    """The printable stand-in of each byte, GPT-2's table."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = iter(range(256, 512))
    return [chr(byte) if byte in kept else chr(next(moved)) for byte in range(256)]


def vocabulary() -> list[str]:
    return [*SPECIALS, *byte_characters(), *(rule.replace(" ", "") for rule in MERGES)]


def write(
    path: Path, *, tied: bool = True, extra: dict[str, Any] | None = None, drop: str = "", pre: str = "smollm"
) -> Path:
    """Write the tiny GGUF; `extra` adds integer keys or replaces strings, `drop` leaves a key or tensor out."""
    strings = {"general.architecture": "llama", "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre}
    strings["tokenizer.chat_template"] = CHAT
    numbers = {
        "llama.block_count": LAYERS,
        "llama.context_length": 128,
        "llama.embedding_length": WIDTH,
        "llama.feed_forward_length": HIDDEN,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    for key, value in (extra or {}).items():
        (strings if isinstance(value, str) else numbers)[key] = value
    writer = gguf.GGUFWriter(path, strings.pop("general.architecture"))
    for key in strings.keys() - {drop}:
        writer.add_string(key, strings[key])
    for key in numbers.keys() - {drop}:
        if isinstance(numbers[key], bool):
            writer.add_bool(key, numbers[key])
        else:
            writer.add_uint32(key, numbers[key])
    writer.add_float32("llama.rope.freq_base", 500.0)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    tokens = vocabulary()
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIALS) + [1] * (len(tokens) - len(SPECIALS)))
    writer.add_token_merges(MERGES)
    for name, (weight, kind) in _weights(len(tokens), tied).items():
        if name != drop:
            writer.add_tensor(name, gguf.quants.quantize(weight, kind), raw_dtype=kind)
    for step in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{step}_to_file")()
    writer.close()
    return path


def _weights(vocab: int, tied: bool) -> dict[str, tuple[np.ndarray, Q]]:
    random = np.random.Generator(np.random.Philox(key=7))

    def normal(rows: int, columns: int, kind: Q = Q.Q4_1) -> tuple[np.ndarray, Q]:
        return (random.standard_normal((rows, columns)) * columns**-0.5).astype(np.float32), kind

    def scale() -> tuple[np.ndarray, Q]:
        return (1 + 0.2 * random.standard_normal(WIDTH)).astype(np.float32), Q.F32

    kv = WIDTH // HEADS * KV_HEADS
    tensors = {"token_embd.weight": normal(vocab, WIDTH, Q.Q8_0), "output_norm.weight": scale()}
    if not tied:
        tensors["output.weight"] = normal(vocab, WIDTH)
    for block in range(LAYERS):
        shapes = {"attn_q": (WIDTH, WIDTH), "attn_k": (kv, WIDTH), "attn_v": (kv, WIDTH)}
        shapes |= {"attn_output": (WIDTH, WIDTH), "ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH)}
        shapes |= {"ffn_down": (WIDTH, HIDDEN)}
        for name, shape in shapes.items():
            tensors[f"blk.{block}.{name}.weight"] = normal(*shape)
        for name in ("attn_norm", "ffn_norm"):
            tensors[f"blk.{block}.{name}.weight"] = scale()
    return tensors


def reference_logits(path: Path, ids: Sequence[int]) -> np.ndarray:
    """Float64 logits [T, V] of a llama GGUF by llama.cpp's convention: rotated pairs are adjacent rows."""
    reader = gguf.GGUFReader(path)
    w = {t.name.removesuffix(".weight"): gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}

    def number(key: str) -> Any:
        return reader.fields[f"llama.{key}"].contents()

    heads, kv_heads = number("attention.head_count"), number("attention.head_count_kv")
    eps, theta = number("attention.layer_norm_rms_epsilon"), number("rope.freq_base")
    x = w["token_embd"][list(ids)].astype(np.float64)
    for block in range(number("block_count")):
        layer = {name: w[f"blk.{block}.{name}"].astype(np.float64) for name in _LAYER_NAMES}
        h = _norm(x, layer["attn_norm"], eps)
        x = x + _attention(h, layer, heads=heads, kv_heads=kv_heads, theta=theta)
        h = _norm(x, layer["ffn_norm"], eps)
        gate = h @ layer["ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ layer["ffn_up"].T)) @ layer["ffn_down"].T
    return _norm(x, w["output_norm"], eps) @ w.get("output", w["token_embd"]).T.astype(np.float64)


_LAYER_NAMES = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output"]
_LAYER_NAMES += ["ffn_norm", "ffn_gate", "ffn_up", "ffn_down"]


def _norm(x: np.ndarray, scale: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * scale


def _attention(h: np.ndarray, layer: dict[str, np.ndarray], *, heads: int, kv_heads: int, theta: float) -> np.ndarray:
    length = len(h)
    q, k, v = (
        (h @ layer[name].T).reshape(length, count, -1)
        for name, count in (("attn_q", heads), ("attn_k", kv_heads), ("attn_v", kv_heads))
    )
    q, k = _rotate(q, theta), _rotate(k, theta)
    out = np.empty_like(q)
    for head in range(heads):
        group = head // (heads // kv_heads)
        scores = q[:, head] @ k[:, group].T / np.sqrt(q.shape[-1])
        scores[np.triu_indices(length, 1)] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out[:, head] = weights / weights.sum(-1, keepdims=True) @ v[:, group]
    return out.reshape(length, -1) @ layer["attn_output"].T


def _rotate(x: np.ndarray, theta: float) -> np.ndarray:
    """Rotate the pairs (2i, 2i + 1) of the last axis as complex numbers. x: [T, heads, head_dim]."""
    pairs = x[..., 0::2] + 1j * x[..., 1::2]
    frequencies = theta ** (-np.arange(pairs.shape[-1]) / pairs.shape[-1])
    pairs = pairs * np.exp(1j * np.arange(len(x))[:, None, None] * frequencies)
    return np.stack([pairs.real, pairs.imag], -1).reshape(x.shape)


class SlowBPE:
    """Byte-level BPE by the book from a GGUF's lists: split, then merge the best-ranked pair until none is left."""

    _WORDS = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
    _DIGITS = regex.compile(r"\p{N}|\P{N}+")

    def __init__(self, path: Path, *, split_digits: bool = True) -> None:
        fields = gguf.GGUFReader(path).fields
        tokens = fields["tokenizer.ggml.tokens"].contents()
        types = fields["tokenizer.ggml.token_type"].contents()
        merges = fields["tokenizer.ggml.merges"].contents()
        self.ids = {token: index for index, token in enumerate(tokens)}
        self.ranks = {tuple(rule.split(" ")): rank for rank, rule in enumerate(merges)}
        specials = [token for token, kind in zip(tokens, types, strict=True) if kind == 3]
        self.specials = re.compile("(" + "|".join(map(re.escape, specials)) + ")")
        self.characters = byte_characters()
        self.split_digits = split_digits

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for number, part in enumerate(self.specials.split(text)):
            if number % 2:
                ids.append(self.ids[part])
                continue
            for run in self._DIGITS.findall(part) if self.split_digits else [part]:
                for word in self._WORDS.findall(run):
                    ids += self._word(word)
        return ids

    def _word(self, word: str) -> list[int]:
        symbols = [self.characters[byte] for byte in word.encode()]
        while True:
            ranked = [(self.ranks.get(pair, len(self.ranks)), i) for i, pair in enumerate(pairwise(symbols))]
            rank, at = min(ranked, default=(len(self.ranks), 0))
            if rank == len(self.ranks):
                return [self.ids[symbol] for symbol in symbols if symbol in self.ids]
            symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
