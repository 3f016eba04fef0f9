"""A model tree with some modules exchanged: shared weights, nothing patched, nothing copied."""

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

import mlx.nn as nn

from draftledger.errors import UnsupportedError

Kind = TypeVar("Kind", bound=nn.Module)


def module_at(model: nn.Module, path: str) -> nn.Module:
    """Return the module at a dotted path such as `model.layers.3.mlp.up_proj`."""
    node: Any = model
    for step in path.split("."):
        node = node[int(step)] if isinstance(node, list) else node.get(step)
        if node is None:
            raise UnsupportedError(f"the target has no module {path}; check `modules` against its layers")
    return node


def with_modules(model: nn.Module, modules: Mapping[str, nn.Module]) -> nn.Module:
    """Return a shallow twin of a model in which the modules at the given dotted paths are others.

    Everything else, weights included, is the same object; the model itself is left as it was.
    """
    twin = model
    for path, module in modules.items():
        module_at(model, path)
        twin = _exchanged(twin, path.split("."), module)
    return twin


def of_kind(module: nn.Module, kind: type[Kind]) -> Kind:
    """Return a shallow twin of a module that is an instance of another class: same children, weights and settings."""
    twin = kind.__new__(kind)
    dict.update(twin, module)  # a module's own `update` takes parameters only
    vars(twin).update(vars(module))
    return twin


def _exchanged(node: Any, steps: list[str], module: nn.Module) -> Any:
    if not steps:
        return module
    twin = list(node) if isinstance(node, list) else copy.copy(node)
    key: Any = int(steps[0]) if isinstance(node, list) else steps[0]
    twin[key] = _exchanged(twin[key], steps[1:], module)
    return twin
