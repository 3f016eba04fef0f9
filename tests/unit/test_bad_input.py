"""Hostile files meet one line each, little memory, and leave nothing behind; releases have tests of their own."""

import json
import resource
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import synthetic_summary as synthetic

from draftledger.corpus.sources import read_documents
from draftledger.drafters.formats.files import scan
from draftledger.errors import CorruptError, DraftledgerError
from draftledger.figures import categories, style
from draftledger.figures.page import render
from draftledger.measurement.prompts import load_prompts
from draftledger.models.folder import read_json, scan_safetensors
from draftledger.provenance.code import accepted
from draftledger.provenance.digest import content_digest
from draftledger.provenance.ledger import parse_sums
from draftledger.provenance.manifest import describe, parse_manifest, verified
from draftledger.provenance.recipe import parse_recipe
from draftledger.provenance.store import Store
from releases import Desk

DEEP = "[" * 200_000 + "]" * 200_000
SCRIPTS = Path(__file__).resolve().parents[2] / "workflow_scripts"
MEMORY = 2_000_000_000  # bytes of address space, most of it libraries that are mapped


def one_line(call, *arguments, **options) -> str:
    """Return the message of the refusal."""
    with pytest.raises(DraftledgerError) as refusal:
        call(*arguments, **options)
    message = str(refusal.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


def headed(folder: Path, size: int, text: bytes = b"{}") -> Path:
    """Write a safetensors file whose header claims to be of that size."""
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", size) + text)
    return path


# --- tensors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, 2**40, 3])
@pytest.mark.parametrize("read", [content_digest, describe, scan_safetensors, scan])
def test_a_header_that_claims_too_much(tmp_path, read, size):
    path = headed(tmp_path, size)
    assert str(path) in one_line(read, path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("read", [content_digest, scan_safetensors, scan])
def test_a_header_that_is_nested_too_deeply(tmp_path, read):
    text = DEEP.encode()
    one_line(read, headed(tmp_path, len(text), text))


def test_settings_in_a_header_that_are_nested_too_deeply(tmp_path):
    text = json.dumps({"__metadata__": {"draftledger.config": DEEP}}).encode()
    assert "not JSON" in one_line(scan, headed(tmp_path, len(text), text))


def test_a_large_file_with_a_false_header_takes_little_memory(tmp_path):
    path = headed(tmp_path, 2**33)
    with open(path, "r+b") as file:
        file.truncate(2**34)  # sparse
    code = "import sys; from pathlib import Path; from draftledger.provenance.digest import tensor_digests as read"
    code += "\nfrom draftledger.models.folder import scan_safetensors as scan\nfor call in (read, scan):"
    code += "\n    try: call(Path(sys.argv[1]))\n    except Exception as error: print(type(error).__name__)"
    limit = 2**34 + MEMORY  # the digest maps the file
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        env={"PYTHONPATH": str(SCRIPTS), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert done.stdout.split() == ["CorruptError", "SourceError"], done.stderr


# --- JSON ------------------------------------------------------------------------------------------------------------


def test_nested_json_is_refused_wherever_it_is_read(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(DEEP)
    (tmp_path / "p.jsonl").write_text(DEEP)
    store = Store(tmp_path / "store")
    store.action("k").parent.mkdir(parents=True)
    store.action("k").write_text(DEEP)
    folder = {"kind": "folder", "path": str(tmp_path), "glob": "*.jsonl", "licence": "MIT"}
    one_line(parse_manifest, DEEP.encode(), where="m")
    one_line(parse_recipe, DEEP.encode(), where="r")
    one_line(content_digest, path)
    one_line(read_json, path)
    one_line(accepted, path)
    one_line(store.draws, "k")
    one_line(load_prompts, tmp_path / "p.jsonl", split="report")
    one_line(lambda: list(read_documents(folder, tmp_path)))


def test_a_newer_schema_is_refused(tmp_path):
    home = Desk(tmp_path).home
    fields = json.loads((home.folder / "report.html.manifest.json").read_text())
    newer = json.dumps({**fields, "schema": 2}).encode()
    assert one_line(parse_manifest, newer, where="m") == "m: schema 2 is not 1; use the release that wrote it"
    recipe = json.loads((home.folder / "report.html.recipe.json").read_text())
    newer = json.dumps({**recipe, "schema": 2}).encode()
    assert one_line(parse_recipe, newer, where="r") == "r: schema 2 is not 1; use the release that wrote it"


def test_upper_case_digests_are_refused(tmp_path):
    one_line(parse_sums, f"{'A' * 64}  x\n")
    home = Desk(tmp_path).home
    path = home.folder / "report.html"
    beside = home.folder / "report.html.manifest.json"
    fields = json.loads(beside.read_text())
    beside.write_text(json.dumps({**fields, "sha256": fields["sha256"].upper()}))
    with pytest.raises(CorruptError, match="differs from its manifest"):
        verified(path)
    recipe = json.loads((home.folder / "report.html.recipe.json").read_text())
    with pytest.raises(CorruptError, match="does not give its own key"):
        parse_recipe(json.dumps({**recipe, "key": recipe["key"].upper()}).encode(), where="r")


# --- markup ----------------------------------------------------------------------------------------------------------


def test_markup_in_a_prompt_is_escaped_in_the_report(tmp_path):
    """A prompt reaches the report by its category alone; its text and id reach the rows."""
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    line = {"id": evil, "category": evil, "split": "report", "text": evil}
    (tmp_path / "p.jsonl").write_text(json.dumps(line))
    (prompt,) = load_prompts(tmp_path / "p.jsonl", split="report")
    summary = synthetic.summary()
    rows = [
        {**row, "scope": f"category:{prompt.category}"} if row["scope"] != "all" else row for row in summary.to_pylist()
    ]
    table = type(summary).from_pylist(rows, schema=synthetic.SCHEMA)
    page = render(
        title=prompt.category,
        summary=table,
        figures={"categories": style.svg(categories.draw(table))},
        environment={},
        provenance=[],
    )
    assert evil not in page
    assert "onerror=alert(2)&gt;" in page
    assert "<img" not in page
    assert page.lower().count("<script") == 1  # the page's own
    assert "<img" not in table.to_pandas().to_html(index=False)
