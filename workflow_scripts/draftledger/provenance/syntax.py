"""What a Python source does, as plain text that is the same under every supported Python."""

import ast


def form(tree: ast.AST) -> str:
    """Return a syntax tree without comments, docstrings and layout, as one line of text.

    Fields that are empty are left out, so that those which only a newer Python knows do not count until they are
    used. `ast.unparse` and `ast.dump` will not do: their texts differ between minor versions.
    """
    pieces: list[str] = []
    _write(tree, pieces)
    return "".join(pieces)


def _write(node: ast.AST, pieces: list[str]) -> None:
    pieces.append(f"({type(node).__name__}")
    for name, value in ast.iter_fields(node):
        # How a string is prefixed is layout; a constant's value may be None and must stay.
        if name == "kind" or (value in (None, []) and not isinstance(node, ast.Constant)):
            continue
        pieces.append(f" {name}=")
        if isinstance(value, ast.AST):
            _write(value, pieces)
        elif isinstance(value, list):
            _write_list(node, name, value, pieces)
        else:
            # Not repr: which letters it shows as they are follows Python's Unicode tables.
            pieces.append(ascii(value))
    pieces.append(")")


def _write_list(node: ast.AST, name: str, values: list[object], pieces: list[str]) -> None:
    if name == "body" and _is_text(values[0]):
        values = values[1:] or [ast.Pass()]
    pieces.append("[")
    for value in values:
        # Python 3.12.1 has pieces of no letters in an f-string where its neighbours have none.
        if isinstance(node, ast.JoinedStr) and isinstance(value, ast.Constant) and value.value == "":
            continue
        if isinstance(value, ast.AST):
            _write(value, pieces)
        else:
            pieces.append(f"{value!a},")
    pieces.append("]")


def _is_text(node: object) -> bool:
    """Tell whether a statement is a text alone: at the head of a body it is a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
