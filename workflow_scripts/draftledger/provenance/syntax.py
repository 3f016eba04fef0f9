"""What a Python source does, as plain text that is the same under every supported Python."""

import ast
from collections.abc import Iterator


def form(source: str) -> str:
    """Return a source's syntax tree without comments, docstrings and layout, as one line of text.

    Fields that are empty are left out, so that those which only a newer Python knows do not count until they are
    used. `ast.unparse` and `ast.dump` will not do: their texts differ between minor versions. Raises SyntaxError.
    """
    return "".join(_tree(ast.parse(source)))


def _tree(node: ast.AST) -> Iterator[str]:
    yield f"({type(node).__name__}"
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(value, list):
            value = _without_docstring(value)
        # How a string is prefixed is layout; a constant's value may be None and must stay.
        if name == "kind" or (value in (None, []) and not isinstance(node, ast.Constant)):
            continue
        yield f" {name}="
        yield from _value(value)
    yield ")"


def _value(value: object) -> Iterator[str]:
    if isinstance(value, ast.AST):
        yield from _tree(value)
    elif isinstance(value, list):
        yield "["
        for item in value:
            yield from _value(item)
        yield "]"
    else:
        # Not repr: which letters it shows as they are follows Python's Unicode tables.
        yield ascii(value)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    match body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            return list(rest) or [ast.Pass()]
    return body
