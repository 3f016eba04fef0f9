"""RO-Crate metadata of a release: references lead somewhere, an independent reader and the validator take it."""

import importlib.util
import json
import subprocess
import sys
import tarfile
from importlib.resources import files
from pathlib import Path

import pytest

from releases import Desk

VALIDATE = """
import json, sys
from types import SimpleNamespace
from rocrate_validator.utils.http import HttpRequester
text = open(sys.argv.pop(1)).read()
told = {"Content-Type": "application/ld+json"}
answer = SimpleNamespace(status_code=200, json=lambda: json.loads(text), text=text, content=text.encode(), headers=told)
HttpRequester.get = lambda self, url, **options: answer
from rocrate_validator.cli import cli
cli()
"""


@pytest.fixture(scope="module")
def crate(tmp_path_factory) -> Path:
    """Return an unpacked release that holds everything."""
    folder = tmp_path_factory.mktemp("desk")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        desk = Desk(folder)
        assert desk.release(level="full") == 0
    with tarfile.open(desk.archive) as archive:
        archive.extractall(folder / "out", filter="data")
    return folder / "out" / "nano-1.0"


@pytest.fixture
def graph(crate) -> dict[str, dict]:
    """Return the entities by id."""
    entities = json.loads((crate / "ro-crate-metadata.json").read_text())["@graph"]
    assert len({item["@id"] for item in entities}) == len(entities)
    return {item["@id"]: item for item in entities}


def references(value) -> set[str]:
    """Return every id that an entity refers to."""
    if isinstance(value, list):
        return {target for item in value for target in references(item)}
    return {value["@id"]} if isinstance(value, dict) else set()


def test_every_reference_leads_to_an_entity(graph):
    found = {target for item in graph.values() for value in item.values() for target in references(value)}
    assert found - graph.keys() == {"https://w3id.org/ro/crate/1.1"}


def test_every_file_is_there_and_of_the_size_that_is_said(graph, crate):
    shown = [item for item in graph.values() if item["@type"] == "File"]
    assert {item["@id"] for item in shown} == references(graph["./"]["hasPart"])
    assert {item["@id"]: (crate / item["@id"]).stat().st_size for item in shown} == {
        item["@id"]: int(item["contentSize"]) for item in shown
    }


def test_a_job_is_an_action_with_what_it_read_and_made(graph):
    (summary,) = (item for item in graph.values() if item["@type"] == "CreateAction" and item["name"] == "summary")
    assert references(summary["result"]) == {"results/summary.parquet"}
    assert references(summary["object"]) == {
        "results/decode/lora/seed1-launch0/rounds.parquet",
        "config/decision.yaml",
    }


def test_an_independent_reader_takes_it(crate):
    rocrate = pytest.importorskip("rocrate.rocrate")
    found = rocrate.ROCrate(str(crate))
    assert found.name == "draftledger nano 1.0"
    assert str(found.root_dataset["datePublished"]).startswith("2026-01-02")
    assert found.get("results/summary.parquet") is not None


@pytest.mark.skipif(importlib.util.find_spec("rocrate_validator") is None, reason="roc-validator is not installed")
def test_its_validator_accepts_it(crate):
    """The context that it would fetch comes from the rocrate package, so that no network is needed."""
    context = files("rocrate") / "data" / "ro-crate.jsonld"
    command = [sys.executable, "-c", VALIDATE, str(context), "--disable-color", "-y", "validate", str(crate)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "valid process-run-crate-0.5" in done.stdout
