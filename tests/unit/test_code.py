"""The digest of a stage's code: what it runs counts, how that is written or explained does not."""

import ast
import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftledger.errors import ConfigError
from draftledger.provenance.code import accepted, code_digest, resolve
from draftledger.provenance.syntax import form

SCRIPT = '''"""A stage."""

from draftledger.used import scale


def main(value):
    """Return the result."""
    import draftledger.late.inner

    # why
    return scale(value) + 1
'''
FILES = {
    "stage.py": SCRIPT,
    "draftledger/__init__.py": '"""The package."""\n',
    "draftledger/used.py": '"""Used."""\nfrom draftledger.deep import FACTOR\n\nscale = lambda x: FACTOR * x\n',
    "draftledger/deep.py": "FACTOR = 3\n",
    "draftledger/late/__init__.py": "",
    "draftledger/late/inner.py": "LATE = 1\n",
    "draftledger/unused.py": "UNUSED = 1\n",
    "draftledger/kinds/lookup.py": "KIND = 1\n",
}


@pytest.fixture
def digest_of(tmp_path):
    """Return a function that writes a tree with some files changed and digests its stage."""
    made = iter(range(1000))

    def digest(changes=(), *, entries=("stage.py",)):
        root = tmp_path / str(next(made))
        for name, text in (FILES | dict(changes)).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return code_digest([root / name for name in entries], root=root)

    return digest


def edit(name: str, old: str, new: str) -> dict[str, str]:
    assert old in FILES[name]
    return {name: FILES[name].replace(old, new)}


HARMLESS = {
    "comment": edit("stage.py", "# why", "# because"),
    "comment in a deep module": edit("draftledger/deep.py", "3", "3  # three"),
    "blank lines": edit("stage.py", "\n\n\n", "\n\n\n\n\n"),
    "module docstring": edit("draftledger/used.py", "Used", "Otherwise explained"),
    "no docstring": edit("stage.py", '    """Return the result."""\n', ""),
    "layout": edit(
        "stage.py", "scale(value) + 1", "(\n        scale(\n            value,\n        )\n        + 1\n    )"
    ),
    "quotes": edit("draftledger/__init__.py", '"""The package."""', "'The package.'"),
    "a module that is not imported": edit("draftledger/unused.py", "1", "2"),
    "a kind that is not run": edit("draftledger/kinds/lookup.py", "1", "2"),
}
COUNTED = {
    "constant": edit("stage.py", "+ 1", "+ 2"),
    "renamed variable": edit("stage.py", "value", "number"),
    "imported module": edit("draftledger/used.py", "FACTOR * x", "x * FACTOR"),
    "module imported by an imported one": edit("draftledger/deep.py", "3", "4"),
    "module imported inside a function": edit("draftledger/late/inner.py", "1", "2"),
    "package's __init__": edit("draftledger/__init__.py", '"""The package."""', "VERSION = 1"),
    "inner package's __init__": {"draftledger/late/__init__.py": "X = 1"},
    "string that is no docstring": edit("draftledger/deep.py", "3", '"3"'),
    "new import": edit("stage.py", "import scale\n", "import scale\nimport draftledger.unused\n"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_does_not_run_does_not_count(digest_of, name):
    assert digest_of(HARMLESS[name]) == digest_of()


@pytest.mark.parametrize("name", COUNTED)
def test_what_runs_counts(digest_of, name):
    assert digest_of(COUNTED[name]) != digest_of()


def test_the_module_of_a_kind_counts_when_it_is_an_entry(digest_of):
    entries = ("stage.py", "draftledger/kinds/lookup.py")
    changed = edit("draftledger/kinds/lookup.py", "1", "2")
    assert digest_of(entries=entries) != digest_of()
    assert digest_of(changed, entries=entries) != digest_of(entries=entries)


def test_a_data_file_of_the_same_name_beside_a_module_counts_by_its_bytes(digest_of):
    with_page = {"draftledger/used.html": "<p>"}
    assert digest_of(with_page) != digest_of()
    assert digest_of({"draftledger/used.html": "<p> "}) != digest_of(with_page)
    assert digest_of({"draftledger/unused.html": "<p>"}) == digest_of()


@pytest.mark.parametrize("line", ["from . import deep", "from .deep import FACTOR", "from ..x import y"])
def test_a_relative_import_is_refused(digest_of, line):
    with pytest.raises(ConfigError, match=r"used\.py:1: relative import; write the full module name"):
        digest_of({"draftledger/used.py": line + "\n"})


@pytest.mark.parametrize(
    "line", ["import draftledger.deep as d", "from draftledger import deep", "from draftledger.deep import FACTOR as F"]
)
def test_every_form_of_import_is_followed(digest_of, line):
    only = {"stage.py": line}
    assert digest_of(only | edit("draftledger/deep.py", "3", "4")) != digest_of(only)


def test_modules_that_import_each_other_are_digested(digest_of):
    assert digest_of({"draftledger/deep.py": "import draftledger.used\n"}) != digest_of()


def test_the_digest_does_not_depend_on_the_folder_or_the_order_of_entries(digest_of):
    one, other = ("stage.py", "draftledger/unused.py"), ("draftledger/unused.py", "stage.py")
    assert digest_of(entries=one) == digest_of(entries=other)


# --- the same under every Python -------------------------------------------------------------------------------------

EVERYTHING = '''"""Docstring."""
from __future__ import annotations
import os as o, sys


class A(dict, metaclass=type):
    """Docstring."""


@o.wraps(len)
async def f(a, /, b: int = -1, *args: "x", c=None, **kwargs) -> list[int]:
    """Docstring."""
    global g
    x: float = 1e-9
    if (n := a[1:2, ...]) and not b or a is None:
        return f"{a!r:>{b}.{c}f}é\\n{b}" f"{x:}" "" u"u" r"\\d"[1:], b"\\x00"
    try:
        async with a as b, c: pass
    except* (ValueError, KeyError) as error: raise x from error
    else: del a.b, x
    finally: await a
    match a:
        case [1, {"k": v, **r}, *_] | A(x=0) if v: ...
        case None | -1.5j: yield
    while 1_000 < 0x10 <= b: x = lambda *, k=1: k; continue
    else: print(*[i async for i in a if i], **{**b, "\u0378": {1, 2}}, end=1_0.0)
'''


def test_the_form_of_a_source_is_the_same_under_every_python():
    """The value was computed under 3.11, 3.12 and 3.13, whose `ast.dump` differ."""
    text = form(ast.parse(EVERYTHING))
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "6cf974fde078c5f22147cf415dd37ea6a9c8c71f7cd3cf65ea9c4481dd2c627d"
    )
    assert "Docstring" not in text
    assert text.isascii()


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("x = 'a' 'b'", 'x = "ab"', True),
        ("x = u'a'", "x = 'a'", True),
        ("x = 0x10", "x = 16", True),
        ("class A:\n  'why'", "class A: pass", True),
        ("x = None", "x = ...", False),
        ("x = 1", "x = True", False),
        ("x = 1", "x = 1.0", False),
        ("x = 'a'", "x = b'a'", False),
        ("def f(a, b): 0", "def f(a, *, b): 0", False),
        ("def f(): return", "def f(): return None", False),
        ("x = f'{a}'", "x = f'{a!r}'", False),
        ("x = ''", "x = 'a'", False),
        ("'a'\n'b'", "'c'\n'b'", True),
        ("x = 1\n'a'", "x = 1\n'b'", False),
    ],
)
def test_forms_are_equal_when_sources_do_the_same(one, other, equal):
    assert (form(ast.parse(one)) == form(ast.parse(other))) is equal


# --- accepted edits --------------------------------------------------------------------------------------------------


def accept(*pairs, stage="decode"):
    return [{"stage": stage, "old": old, "new": new, "reason": "renamed", "date": "2026-01-01"} for old, new in pairs]


@pytest.mark.parametrize(
    ("edits", "today", "resolved"),
    [
        ([], "b", "b"),
        (accept(("a", "b")), "b", "a"),
        (accept(("a", "b")), "a", "a"),
        (accept(("a", "b"), ("b", "c")), "c", "a"),
        (accept(("b", "c"), ("a", "b")), "c", "a"),
        (accept(("a", "b"), stage="timing"), "b", "b"),
        (accept(("a", "a")), "a", "a"),
    ],
)
def test_accepted_edits_lead_back_to_the_code_that_made_the_results(edits, today, resolved):
    assert resolve("decode", today, edits) == resolved


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd")), max_size=8), st.sampled_from("abcd"))
def test_cycles_of_edits_end(pairs, today):
    reachable = {today}
    for _ in pairs:
        reachable |= {old for old, new in pairs if new in reachable}
    assert resolve("decode", today, accept(*pairs)) in reachable


def test_accepted_edits_are_read_or_refused(tmp_path):
    path = tmp_path / "accepted.json"
    assert accepted(path) == []
    path.write_text(json.dumps({"edits": accept(("a", "b"))}))
    assert accepted(path) == accept(("a", "b"))


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", "null", '{"edits": [1]}', '{"edits": [{"old": "a"}]}'])
def test_an_unreadable_list_of_edits_is_one_line(tmp_path, text):
    path: Path = tmp_path / "accepted.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="restore it from version control") as caught:
        accepted(path)
    assert "\n" not in str(caught.value)
