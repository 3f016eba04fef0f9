"""What the commands say of a finished run: that it holds, where every number comes from, and what an edit changes."""

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
import yaml

from draftledger.jobs import jobs
from draftledger.plan import Plan
from draftledger.provenance.digest import file_digest
from draftledger.provenance.graph import Folder, read_graph
from draftledger.provenance.numbers import read_numbers
from draftledger.provenance.trace import gaps, trace_number

NANO = "config/nano.yaml"
AUDIT = ("audit", "--configfile", NANO)
SPEED = ("speedup_decode", "--arm", "block_lora", "--baseline", "ar")


def test_the_planned_jobs_are_those_that_the_rules_ran(finished):
    """The rules and `draftledger.jobs` say the same twice; this holds them together."""
    plan = Plan(yaml.safe_load((finished.folder / NANO).read_text()), finished.folder)
    planned = {path.removeprefix(f"{plan.root}/"): job for job in jobs(plan) for path in job.outputs}
    recipes = {name: json.loads(path.read_text()) for name, path in finished.files(".recipe.json")}
    assert set(planned) == set(recipes)
    for name, job in planned.items():
        recipe, inputs = recipes[name], {path.removeprefix(f"{plan.root}/") for path in job.inputs}
        assert (job.rule, job.spec, job.code) == (recipe["rule"], recipe["spec"], recipe["code"])
        assert inputs - {"environment.json"} == {item["role"] for item in recipe["inputs"]}, name
        assert ("environment.json" in inputs) == (recipe["environment"] is not None), name


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("bootstrap: 200", "bootstrap: 300", "0 of 4 planned jobs are in the store, 3 unknown"),
        ("seeds: [1, 2]", "seeds: [1, 2, 3]", "0 of 7 planned jobs are in the store, 6 unknown"),
        (None, None, "6 of 7 planned jobs are in the store"),  # all but the ledger, which is a probe
    ],
    ids=["bootstrap", "seed", "deleted"],
)
def test_the_line_counts_the_jobs_that_snakemake_plans(work, old, new, told):
    if old:
        work.edit(NANO, old, new)
    else:
        (work.results / "decode/lookup/shared/rounds.parquet").unlink()
    text = work.snakemake("-n")
    assert told in next(line for line in text.splitlines() if line.startswith("ledger: "))
    counted = int(told.split(" of ")[1].split()[0])
    assert f"total {counted + 1}" in " ".join(text.split())  # and the target rule itself


def test_verify_and_audit_find_nothing(finished):
    root = file_digest(finished.results / "SHA256SUMS")
    assert finished.tool("verify", "--expect", root) == "verify: 46 ok\n"
    assert json.loads(finished.tool("verify", "--json"))["counts"] == {"ok": 46}
    assert "ok" in finished.tool("verify", "--store")
    told = finished.tool(*AUDIT)
    assert "artefacts: 46 ok\nnumbers: " in told
    assert "stale" not in told


def test_audit_names_what_an_edit_makes_stale(work):
    work.edit(NANO, "    steps: 4", "    steps: 5")
    told = work.tool(*AUDIT, check=False)
    assert "block_lora/seed1-launch0/adapter.safetensors and 3 more: drafter.steps: 4 → 5" in told
    found = json.loads(work.tool(*AUDIT, "--json", check=False))
    own = {each["name"]: each["own"] for each in found["artefacts"]["not_ok"] if each["own"]}
    assert own == {name: ["drafter.steps: 4 → 5"] for name in own}
    assert {name.rsplit("/", 1)[1] for name in own} == {"adapter.safetensors", "history.parquet"}
    stale = {each["name"] for each in found["numbers"]["not_ok"]}
    assert any(name.startswith("speedup_decode of lookup") for name in stale)  # it was timed beside block_lora
    assert not any(name.startswith("acceptance_rate of lookup") for name in stale)


def test_every_number_has_a_way_back_without_a_gap(finished, tmp_path):
    told = finished.tool("trace", *SPEED, "--svg", str(tmp_path / "way.svg"))
    for root in ("speedup_decode of block_lora against ar: ", "config/decision.yaml", "config/prompts/tiny.jsonl"):
        assert root in told
    for pin in ("generated here, seed 7", "first weights drawn here, seed 1", "training seed 2", "mlx 0."):
        assert pin in told
    ET.parse(tmp_path / "way.svg")
    files = Folder(finished.results)
    graph, numbers = read_graph(files), read_numbers(files)
    assert len(numbers) > 100
    assert [gaps(trace_number(graph, row)) for row in numbers] == [[]] * len(numbers)


def test_a_gap_is_named_and_fails(work):
    (work.results / "corpus/documents.parquet.manifest.json").unlink()
    told = work.tool("trace", *SPEED, check=False)
    assert "draftledger: gap: corpus/documents.parquet: nothing here has the content" in told


WITHOUT_MLX = """
import sys
from draftledger.cli import main
code = main(sys.argv[1:])
assert not {name.split(".")[0] for name in sys.modules} & {"mlx", "mlx_lm"}
sys.exit(code)
"""


def test_replay_gives_the_same_bytes_without_mlx(finished):
    before = {path: path.stat().st_mtime_ns for path in finished.results.rglob("*")}
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_MLX, "replay", "--bytes"],
        cwd=finished.folder,
        env={**os.environ, "PYTHONPATH": str(finished.folder / "workflow_scripts")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert told.count("same bytes: ") == 9
    assert "same bytes: summary.parquet\n" in told
    assert {path: path.stat().st_mtime_ns for path in finished.results.rglob("*")} == before


def test_replay_refuses_rows_that_changed(work):
    rows = work.results / "timing/seed1-launch0/session1.parquet"
    rows.write_bytes(rows.read_bytes()[:-1] + b"\x00")
    told = work.tool("replay", check=False)
    assert "not replayed: summary.parquet: " in told
    assert "session1.parquet: differs from its manifest" in told


def test_diff_of_a_run_with_itself_is_empty(finished, tmp_path):
    shutil.copytree(finished.results, tmp_path / "copy")
    told = finished.tool("diff", "results", str(tmp_path / "copy"))
    assert told == "0 artefacts differ, 0 numbers moved\n"


def test_gc_keeps_a_finished_run_whole(work):
    assert "0 recipes, 0 blobs" in work.tool("gc", "--dry-run")
    for path in (work.results / "decode/lookup/shared").iterdir():
        path.unlink()
    assert "1 recipes, 2 blobs" in work.tool("gc")
    assert "altered" not in work.tool("verify", "--store")
