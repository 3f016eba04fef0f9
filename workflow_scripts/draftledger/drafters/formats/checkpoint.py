"""A published drafter as its files describe it: packaging, settings, and which tensor is which; nothing is read yet."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from draftledger.drafters.formats.checks import DrafterConfig, completed, configured
from draftledger.drafters.formats.files import Files, scan
from draftledger.drafters.formats.nvfp4 import float_shapes
from draftledger.drafters.formats.packagings import Packaging, recognise
from draftledger.drafters.formats.settings import Config
from draftledger.drafters.formats.shapes import Shape, check_shapes, expected
from draftledger.errors import UnsupportedError

# Tensors that only training needs: the map from target to draft ids, and copies of the target's.
DROPPED = ("t2d", "verifier_norm.weight", "verifier_lm_head.weight")
# Other packagings' names for the same tensor, by ending or by the whole name.
RENAMED = {"model.embed_tokens.weight": "embed_tokens.weight"}
RENAMED_ENDS = {".self_attn.attention_sink_bias": ".self_attn.sinks"}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A drafter that may be loaded: its files, configuration, and source name by internal tensor name."""

    files: Files
    packaging: Packaging
    config: DrafterConfig
    names: Mapping[str, str]


def inspect(path: Path) -> Checkpoint:
    """Recognise a published drafter and check that it has exactly the tensors that its config calls for.

    Raises SourceError or UnsupportedError, one line with the reason.
    """
    files, where = scan(path), str(path)
    packaging = recognise(files.config, where=where)
    shapes = float_shapes(files.tensors, where=where)
    kept = [name for name in shapes if name not in (*DROPPED, *packaging.dropped)]
    names = {_internal(name): name for name in kept}
    if twice := sorted(set(kept) - set(names.values())):
        raise UnsupportedError(f"{where}: tensor {twice[0]} stands under two names; which one counts is not said")
    found = {internal: shapes[name] for internal, name in names.items()}
    config = _configured(packaging, files.config or {}, found, where=f"{where}: {packaging.name}")
    check_shapes(found, expected(packaging.kind, asdict(config)), where=where)
    return Checkpoint(files, packaging, config, names)


def _internal(name: str) -> str:
    for end, other in RENAMED_ENDS.items():
        if name.endswith(end):
            return name.removesuffix(end) + other
    return RENAMED.get(name, name)


def _configured(packaging: Packaging, config: Config, shapes: Mapping[str, Shape], *, where: str) -> DrafterConfig:
    kind = packaging.kind
    try:
        settings = completed(kind, packaging.settings(config))
        return configured(kind, {**settings, **_told_by_tensors(kind, settings, shapes)})
    except UnsupportedError as error:
        raise UnsupportedError(f"{where}: {error}") from None
    except (KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise UnsupportedError(f"{where}: config.json lacks or garbles {error}") from None


def _told_by_tensors(kind: str, settings: Mapping[str, Any], shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """Return what only the tensors tell: configs are often copies of the target's, or leave out what is usual."""
    if kind != "dspark":
        return {}
    rows = shapes.get("layers.0.self_attn.q_proj.weight", (0,))[0]
    confidence = shapes.get("confidence_head.proj.weight")
    usual = {
        "enable_confidence_head": confidence is not None,
        "confidence_head_with_markov": confidence is not None and confidence[-1] > settings["hidden_size"],
    }
    return {
        **{name: value for name, value in usual.items() if name not in settings},
        "gated_query": rows == 2 * settings["num_attention_heads"] * settings["head_dim"],
        "attention_sinks": "layers.0.self_attn.sinks" in shapes,
    }
