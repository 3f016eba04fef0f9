"""Load a target through mlx-lm's own model classes, and write the folder it loads from."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map_with_path
from mlx_lm.utils import load_model

from draftledger.errors import ConfigError, SourceError, UnsupportedError
from draftledger.models import gguf
from draftledger.models.exact import exact
from draftledger.models.folder import (
    FILES,
    Tensor,
    placed,
    read_json,
    scan_safetensors,
    write_json,
    write_safetensors,
)
from draftledger.models.sources import weight_files
from draftledger.models.tokenizer import Tokenizer, eos_ids

_DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16}


@dataclass(frozen=True, slots=True)
class Target:
    """A frozen language model, its tokenizer, and the limits that decoding must keep to."""

    model: nn.Module
    tokenizer: Tokenizer
    config: dict[str, Any]
    eos_ids: frozenset[int]
    vocab_size: int
    context_length: int
    dtype: str


def load_target(folder: Path, *, dtype: str) -> Target:
    """Load the model of a folder, its floating-point weights cast to `dtype` and evaluated.

    The vision part of a checkpoint whose text part mlx-lm runs alone is dropped by mlx-lm.
    Raises SourceError for a missing or broken file, UnsupportedError for a model that mlx-lm's text classes
    do not take whole, or whose vocabulary is smaller than its tokenizer's.
    """
    if dtype not in _DTYPES:
        raise ConfigError(f"runtime.dtype is {dtype!r}; use one of {', '.join(_DTYPES)}")
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise SourceError(f"{folder}: {missing[0]} is missing; re-run the model rule")
    config = read_json(folder / "config.json")
    text = {**config, **config.get("text_config", {})}
    vocab_size, context = (_required(text, key, folder) for key in ("vocab_size", "max_position_embeddings"))
    tokenizer = Tokenizer.from_folder(folder)
    if tokenizer.size > vocab_size:
        raise UnsupportedError(f"{folder}: its tokenizer has {tokenizer.size} ids, the model {vocab_size}")
    model = _load_cast(folder, config, _DTYPES[dtype])
    return Target(model, tokenizer, config, tokenizer.eos_ids | _ids(text), vocab_size, context, dtype)


def _required(config: dict[str, Any], key: str, folder: Path) -> int:
    if not isinstance(config.get(key), int):
        raise UnsupportedError(f"{folder}: config.json has no {key}")
    return config[key]


def _load_cast(folder: Path, config: dict[str, Any], dtype: mx.Dtype) -> nn.Module:
    try:
        model, _ = load_model(folder, lazy=True, strict=True)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        kind = f"{'vision ' if 'vision_config' in config else ''}model type {config.get('model_type')}"
        reason = (str(error).splitlines() or [repr(error)])[0]
        raise UnsupportedError(f"{folder}: mlx-lm cannot load this {kind} as text: {reason}") from error
    keep = getattr(model, "cast_predicate", lambda name: True)

    def cast(name: str, value: mx.array) -> mx.array:
        return value.astype(dtype) if keep(name) and mx.issubdtype(value.dtype, mx.floating) else value

    model.update(tree_map_with_path(cast, model.parameters()))
    model.eval()
    mx.eval(model.parameters())
    return exact(model)


def materialise(source: Path, out: Path) -> None:
    """Write a target's four files into `out` from a GGUF file or a hub / mlx-lm folder.

    A folder's weights are merged and sorted, their bytes kept (quantised ones too); everything that ends an
    answer, and the chat template, are gathered into config.json and tokenizer_config.json.
    Raises SourceError or UnsupportedError; `out` is then as before.
    """
    with placed(out) as scratch:
        if source.is_dir():
            _copy_folder(source, scratch)
        else:
            gguf.convert(source, scratch)


def _copy_folder(source: Path, out: Path) -> None:
    config = read_json(source / "config.json")
    text = source / "tokenizer.json"
    if not text.is_file():
        raise UnsupportedError(f"{source}: no tokenizer.json; convert its tokenizer to that format first")
    (out / "tokenizer.json").write_bytes(text.read_bytes())
    settings = _tokenizer_settings(source)
    write_json(out / "tokenizer_config.json", settings)
    ends = _ids(config) | _ids(config.get("text_config", {})) | _ids(_optional(source, "generation_config.json"))
    ends |= eos_ids(Tokenizer.from_folder(out).backend, settings)
    if not ends:
        raise UnsupportedError(f"{source}: nothing says which token ends an answer (eos_token_id)")
    write_json(out / "tokenizer_config.json", {**settings, "eos_token_ids": sorted(ends)})
    write_json(out / "config.json", {**config, "eos_token_id": sorted(ends)})
    write_safetensors(out / "model.safetensors", _merged(source / name for name in weight_files(source)))


def _tokenizer_settings(source: Path) -> dict[str, Any]:
    """tokenizer_config.json with the chat template, which newer checkpoints keep in a file of its own."""
    settings = _optional(source, "tokenizer_config.json")
    own = source / "chat_template.jinja"
    template = settings.pop("chat_template", None) or _optional(source, "chat_template.json").get("chat_template")
    if own.is_file():
        template = own.read_text(encoding="utf-8")
    if isinstance(template, list):
        template = next((item["template"] for item in template if item["name"] == "default"), None)
    return settings if template is None else {**settings, "chat_template": template}


def _optional(source: Path, name: str) -> dict[str, Any]:
    return read_json(source / name) if (source / name).is_file() else {}


def _ids(config: dict[str, Any]) -> set[int]:
    value = config.get("eos_token_id")
    return set() if value is None else set(value) if isinstance(value, list) else {value}


def _merged(paths: Iterable[Path]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for path in paths:
        if not path.is_file():
            raise SourceError(f"{path}: is missing; fetch the model again")
        found = scan_safetensors(path)
        if twice := sorted(tensors.keys() & found.keys()):
            raise SourceError(f"{path}: {twice[0]} stands in another shard too; fetch the model again")
        tensors |= found
    return tensors
