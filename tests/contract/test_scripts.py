"""What every script, rule and module keeps to, whatever it does."""

import ast
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "workflow_scripts").glob("*.py"))
MODULES = sorted((ROOT / "workflow_scripts").rglob("*.py"))
RULES = {
    block.split(":", 1)[0]: block
    for path in sorted((ROOT / "rules").glob("*.smk"))
    for block in re.split(r"^rule ", path.read_text(), flags=re.M)[1:]
}


def name(path: Path) -> str:
    return path.relative_to(ROOT / "workflow_scripts").as_posix()


# --- scripts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", SCRIPTS, ids=name)
def test_help_comes_at_once_and_without_mlx(script):
    """MLX may only be imported when its BLAS is loaded, which a stage does in its computation."""
    started = time.monotonic()
    command = [sys.executable, "-X", "importtime", str(script), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.startswith("usage: ")
    imported = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert imported.isdisjoint({"mlx", "mlx_lm", "scipy", "matplotlib", "datasets", "transformers"})
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("script", SCRIPTS, ids=name)
def test_a_script_is_thin(script):
    assert len(script.read_text().splitlines()) <= 80


def test_every_rule_has_its_script_and_every_script_its_rule():
    assert {path.stem for path in SCRIPTS} == set(RULES)
    assert [name for name, text in RULES.items() if f'script("{name}")' not in text] == []


# --- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_says_what_it_is_and_what_it_depends_on(rule):
    text = RULES[rule]
    assert re.match(rf'{rule}:\n    """[A-Z][^\n]+\."""\n', text)
    for directive in ("input", "output", "log", "conda", "params", "shell"):
        assert f"\n    {directive}:\n" in text, directive
    params = text.split("    params:\n")[1].split("    shell:")[0]
    assert re.search(r"^        spec=", params, flags=re.M)
    assert re.search(r"^        code=", params, flags=re.M)
    assert re.search(r"output:\n        made\(", text)


@pytest.mark.parametrize("rule", RULES)
def test_an_input_that_is_no_manifest_never_counts_by_its_time_stamp(rule):
    """A fresh clone has new time stamps; manifests keep theirs with the results."""
    block = RULES[rule].split("    input:\n")[1].split("    output:")[0]
    for argument in re.findall(r"^        (\w+=.*)$", block, flags=re.M):
        key, value = argument.split("=", 1)
        allowed = ("script(", "payloads(", "manifests(", "ancient(", "decode_", "timing_", "adapter_")
        assert value.startswith(allowed), f"{rule}: {key}"


# --- modules ---------------------------------------------------------------------------------------------------------


def functions(tree: ast.AST):
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("module", MODULES, ids=name)
def test_a_module_is_short_and_explained(module):
    text = module.read_text()
    tree = ast.parse(text)
    assert len(text.splitlines()) <= 350
    assert ast.get_docstring(tree)
    long = {node.name: node.end_lineno - node.lineno + 1 for node in functions(tree)}
    assert {key: lines for key, lines in long.items() if lines > 40} == {}


@pytest.mark.parametrize("module", MODULES, ids=name)
def test_what_is_public_has_a_docstring(module):
    tree = ast.parse(module.read_text())
    public = [
        node
        for owner in (tree, *(node for node in tree.body if isinstance(node, ast.ClassDef)))
        for node in owner.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]
    assert [node.name for node in public if not ast.get_docstring(node)] == []


@pytest.mark.parametrize("module", MODULES, ids=name)
def test_input_is_never_checked_by_assert(module):
    assert [node.lineno for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Assert)] == []
