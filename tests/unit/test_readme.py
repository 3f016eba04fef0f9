"""README and config/README.md are current: generated parts, paths, commands, options, settings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from draftledger import cli
from draftledger.config import check_config
from draftledger.errors import ConfigError
from draftledger.figures.readme import include, main, wanted
from draftledger.jobs import jobs
from draftledger.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SETTINGS = (ROOT / "config" / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", ROOT / "config" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DEFAULT = yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))
SCHEMA = ROOT / "config" / "config.schema.yaml"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What a run or an edit makes, or what lies inside the results, is not in the repository.
MADE = ("results/", "logs/", "blobs/", "spares/", "actions/", "partial/", ".venv/", ".snakemake/", "X.")
MADE += ("config/accepted.json", "accepted.json", "environment.json", "config.json", "tokenizer.json")
# Nor is what lies inside a release.
MADE += ("<experiment>-<version>/", "licences/", "release.json", "ro-crate-metadata.json")
SUFFIX = re.compile(r"^[\w./-]+\.(md|yaml|svg|cff|py|smk|json|jsonl|txt|sh|toml)$")


def blocks(text: str, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(text) if kind == language]


def commands(text: str) -> Iterator[list[str]]:
    """Each command of the shell blocks as words; comments, redirections and documents within are left out."""
    for line in re.sub(r"<<'END'\n.*?^END$", "", "".join(blocks(text, "sh")), flags=re.M | re.S).splitlines():
        words = [word for word in shlex.split(line, comments=True) if not re.match(r"[A-Z_]+=", word)]
        if words:
            yield words[: words.index(">")] if ">" in words else words


def named_files(text: str) -> set[str]:
    outside = FENCE.sub("", text)
    return {name for name in re.findall(r"`([^`\n]+)`", outside) if name.endswith("/") or SUFFIX.match(name)}


def known_options(capsys: pytest.CaptureFixture[str], command: str) -> set[str]:
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    return set(re.findall(r"--?[a-z][a-z-]*", capsys.readouterr().out))


def test_include_replaces_what_stands_between_markers() -> None:
    text = "a\n<!-- generated: x.md -->\nold\n<!-- /generated -->\nb\n<!-- generated: y.md -->\n<!-- /generated -->\n"
    fresh = include(text, {"x.md": "new\n", "y.md": "| 1 |\n| 2 |\n"})
    assert "old" not in fresh
    assert fresh.startswith("a\n<!-- generated: x.md -->\nnew\n<!-- /generated -->\nb\n")
    assert include(fresh, {"x.md": "new\n", "y.md": "| 1 |\n| 2 |\n"}) == fresh
    assert wanted(fresh) == ["x.md", "y.md"]
    assert include("no markers\n", {}) == "no markers\n"


@pytest.mark.parametrize(
    "text",
    [
        "<!-- generated: x.md -->\nold\n",
        "<!-- generated: x.md -->\n<!-- generated: x.md -->\n<!-- /generated -->\n",
        "<!-- generated: x.md -->\n<!-- /generated -->\n<!-- /generated -->\n",
        "<!-- generated: z.md -->\n<!-- /generated -->\n",
    ],
)
def test_include_refuses_a_bad_marker(text: str) -> None:
    with pytest.raises(ConfigError, match="marker of"):
        include(text, {"x.md": "new\n"})


def test_main_checks_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = tmp_path / "D.md"
    document.write_text("<!-- generated: x.md -->\n<!-- /generated -->\n")
    assert main([str(document)]) == 1
    assert "no such text" in capsys.readouterr().err
    (tmp_path / "x.md").write_text("new\n")
    assert main([str(document), "--check"]) == 1
    assert "stale" in capsys.readouterr().err
    assert main([str(document)]) == 0
    assert main([str(document), "--check"]) == 0
    assert main([str(tmp_path / "absent.md")]) == 1


def test_readme_holds_the_generated_table() -> None:
    assert wanted(README) == ["docs/generated/default-cpu.md", "docs/generated/default-gpu.md"]
    assert main([str(ROOT / "README.md"), "--check"]) == 0


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_and_files_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    assert [link for link in links if not (document.parent / link).exists()] == []
    places = (document.parent, ROOT, ROOT / "workflow_scripts" / "draftledger")
    named = {name for name in named_files(text) if not name.startswith(MADE)}
    if document.name == "formats.md":  # its paths lie in the results
        named = {name for name in named if name.startswith(("config/", "docs/"))}
    assert {name for name in named if not any((place / name).exists() for place in places)} == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_and_options_exist(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from snakemake.cli import get_argument_parser

    snakemake = {option for action in get_argument_parser()._actions for option in action.option_strings}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for tool, *words in commands(document.read_text(encoding="utf-8")):
        options = {re.sub(r"^(-j)\d+$", r"\1", word) for word in words if re.match(r"--?[a-z]", word, re.IGNORECASE)}
        match tool:
            case "make":
                assert set(words) <= targets, words
            case "draftledger":
                assert options <= known_options(capsys, words[0]), words
            case "snakemake":
                assert options <= snakemake, words
            case "python":
                known = words[:2] == ["-m", "draftledger.figures.readme"] or words[0] == "-"
                assert known or (ROOT / words[0]).is_file(), words
            case _:
                assert tool in ("cp", "cd", "(cd", "tar", "shasum", "sha256sum"), tool


def test_every_command_is_in_the_readme() -> None:
    used = {(words[0], *words[1:2]) for words in commands(README)}
    assert {("draftledger", name) for name in ("show", "doctor", "verify", "accept")} <= used
    assert {("make", name) for name in ("summary", "test", "tiny", "report")} <= used


def test_the_example_of_the_ledger_line_counts_the_default_run() -> None:
    made = [path for job in jobs(Plan(DEFAULT, ROOT)) for path in job.outputs]
    assert f"ledger: {len(made)} artefacts, " in README


@pytest.mark.parametrize("block", blocks(README, "yaml"))
def test_example_settings_are_accepted(block: str) -> None:
    check_config({**DEFAULT, **yaml.safe_load(block)}, SCHEMA)


OWN_SECTION = {"sampling"}


def keys(schema: dict[str, Any], where: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Each key of a schema with the section of config/README.md that describes it."""
    for name, inner in schema.get("properties", {}).items():
        yield (
            (f"`{where[-1]}`" if where and where[-1] in OWN_SECTION else f"`{where[0]}`" if where else "Top level"),
            name,
        )
        yield from keys(inner, (*where, name))
    for branch in schema.get("oneOf", ()):
        yield from keys(branch, where)
    if isinstance(schema.get("additionalProperties"), dict):
        yield from keys(schema["additionalProperties"], where)


def test_every_setting_is_described_in_its_section() -> None:
    parts = re.split(r"^##+ (.+)$", SETTINGS, flags=re.MULTILINE)
    described = {
        (title, name)
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
        for cell in re.findall(r"^\| (`[^|]+`) \|", text, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", cell)
    }
    settings = {(title, key) for title, key in keys(yaml.safe_load(SCHEMA.read_text())) if key != "kind"}
    assert settings - described == set()


def drafter_kinds(node: Any) -> Iterator[str]:
    """Each kind that a schema allows for a drafter."""
    if isinstance(node, dict):
        kind = node.get("properties", {}).get("kind", {})
        yield from kind.get("enum", [kind["const"]] if "const" in kind else [])
        for inner in node.values():
            yield from drafter_kinds(inner)
    if isinstance(node, list):
        for inner in node:
            yield from drafter_kinds(inner)


def test_every_kind_is_described() -> None:
    whole = yaml.safe_load(SCHEMA.read_text(encoding="utf-8"))
    schema = whole["properties"]
    choices = (schema["target"], whole["$defs"]["source"], schema["arms"]["additionalProperties"])
    kinds = {branch["title"] for choice in choices for branch in choice["oneOf"]}
    kinds |= {*drafter_kinds(whole["$defs"]), *drafter_kinds(schema["corpus"])}
    assert {"several", "block_lora", "dflash"} <= kinds
    assert {kind for kind in kinds if f"`{kind}`" not in SETTINGS and f"`kind: {kind}`" not in SETTINGS} == set()


def test_every_shipped_configuration_is_listed() -> None:
    shipped = {path.name for path in (ROOT / "config").glob("*.yaml")}
    assert {name for name in shipped if f"`{name}`" not in SETTINGS} == set()
