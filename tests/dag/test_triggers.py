"""What runs again after an edit: exactly the jobs whose result the edit can change, and nothing else."""

import json
import os
import shutil

import pytest
import yaml

from draftledger.plan import Plan
from draftledger.provenance.manifest import manifest_path

BELOW_SUMMARY = {"figures", "report", "ledger"}
SUMMARY = {"summary", *BELOW_SUMMARY}
ADAPTERS = {"adapter block_lora 1 0", "adapter block_lora 2 0"}
TRAINED = {"decode block_lora seed1-launch0", "decode block_lora seed2-launch0"}
SHARED = {f"decode {arm} shared" for arm in ("ar", "ar_twin", "mlx_lm_ar", "lookup", "untrained")}
TIMING = {"timing seed1-launch0 1", "timing seed2-launch0 1"}
PACKAGE = "workflow_scripts/draftledger"
NANO = "config/nano.yaml"

EDITS = {
    "loss": (
        f"{PACKAGE}/training/losses.py",
        "TINY = 1e-9",
        "TINY = 1e-8",
        ADAPTERS | TRAINED | TIMING | SUMMARY,
    ),
    "training setting": (NANO, "    steps: 4", "    steps: 5", ADAPTERS | TRAINED | TIMING | SUMMARY),
    "evaluation setting": (NANO, "new_tokens: 6", "new_tokens: 7", SHARED | TRAINED | TIMING | SUMMARY),
    "setting of one arm": (
        NANO,
        "lookup: {kind: lookup, k: 2, ngram: 2}",
        "lookup: {kind: lookup, k: 2, ngram: 1}",
        {"decode lookup shared"} | TIMING | SUMMARY,
    ),
    "timing setting": (NANO, "repeats: 1", "repeats: 2", TIMING | SUMMARY),
    "bootstrap": (NANO, "bootstrap: 200", "bootstrap: 300", SUMMARY),
    "decision rules": ("config/decision.yaml", "power: 0.8", "power: 0.9", SUMMARY),
    "page template": (f"{PACKAGE}/figures/page.html", "</body>", "<!-- end --></body>", {"report", "ledger"}),
    "one more seed": (
        NANO,
        "seeds: [1, 2]",
        "seeds: [1, 2, 3]",
        {"adapter block_lora 3 0", "decode block_lora seed3-launch0", "timing seed3-launch0 1"} | SUMMARY,
    ),
    "one more arm": (
        NANO,
        "arms:\n",
        "arms:\n  oracle: {kind: oracle, k: 2}\n",
        {"decode oracle shared"} | SUMMARY,
    ),
}


def test_a_second_run_has_nothing_to_do_and_says_so_without_writing(work):
    def seen():
        files = (path for path in work.folder.rglob("*") if path.is_file() and ".snakemake" not in path.parts)
        return {path: path.stat().st_mtime_ns for path in files}

    before = seen()
    told = work.snakemake("-n")
    assert "Nothing to be done" in told
    assert "ledger: 38 artefacts, 0 absent, 0 changed" in told
    assert seen() == before


def test_comments_and_docstrings_plan_nothing(work):
    deep = f"{PACKAGE}/provenance/digest.py"
    work.edit(deep, "MAX_HEADER_BYTES = 100_000_000", "# Larger than any.\nMAX_HEADER_BYTES = 100_000_000")
    work.edit(deep, "Return the sha256 of a file's", "Give the sha256 of a file's")
    work.edit("workflow_scripts/decode.py", "import sys\n", "import sys  # for the exit code\n")
    work.edit("rules/train.smk", "rule adapter:", "# Training.\nrule adapter:")
    work.edit(NANO, "experiment: nano", "# The smallest.\nexperiment: nano")
    assert work.planned() == set()


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_plans_the_jobs_that_it_can_change(work, name):
    path, old, new, jobs = EDITS[name]
    work.edit(path, old, new)
    assert work.planned() == jobs


def test_the_code_of_one_kind_of_drafter_plans_its_own_arms(work):
    path = work.folder / PACKAGE / "drafters" / "lookup.py"
    path.write_text(path.read_text() + "\nEDITED = 1\n")
    assert work.planned() == {"decode lookup shared"} | TIMING | SUMMARY


def test_new_time_stamps_alone_plan_nothing(work):
    for path in sorted(work.folder.rglob("*")):
        if path.is_file() and ".snakemake" not in path.parts:
            os.utime(path)
    assert work.planned() == set()


@pytest.mark.parametrize("metadata", [True, False], ids=["with metadata", "without metadata"])
def test_a_clone_with_the_results_copied_in_plans_nothing(finished, clone, metadata):
    shutil.copytree(finished.folder / "results", clone.folder / "results")
    if metadata:
        shutil.copytree(finished.folder / ".snakemake" / "metadata", clone.folder / ".snakemake" / "metadata")
    assert clone.planned() == set()


def test_an_accepted_edit_plans_nothing(work):
    module = work.folder / PACKAGE / "statistics" / "resampling.py"
    module.write_text(module.read_text() + "\nRENAMED = 1\n")
    assert work.planned() == SUMMARY
    old = json.loads((work.results / "summary.parquet.recipe.json").read_text())["code"]
    new = Plan(yaml.safe_load((work.folder / NANO).read_text()), work.folder).code("summary")
    edit = {"stage": "summary", "old": old, "new": new, "reason": "a name nobody reads", "date": "2026-01-01"}
    (work.folder / "config" / "accepted.json").write_text(json.dumps({"edits": [edit]}))
    assert old != new
    assert work.planned() == set()


@pytest.mark.parametrize("kept", [True, False], ids=["manifest kept", "manifest gone too"])
def test_a_deleted_payload_is_planned_again(work, kept):
    payload = work.results / "decode" / "lookup" / "shared" / "rounds.parquet"
    payload.unlink()
    if not kept:
        manifest_path(payload).unlink()
    assert work.planned() == {"decode lookup shared"} | TIMING | SUMMARY
