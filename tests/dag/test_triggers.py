"""What runs again after an edit, and what of it is really computed: exactly what the edit can change.

`DRAFTLEDGER_TRIGGERS=tiny` (or `nano`) carries out every row of the table on that experiment; without it the rows are
dry-runs of nano, and the few whose jobs may be store hits are carried out.
"""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from jobs import SUMMARY, Jobs, has_seed, makers
from workspace import Workspace

PACKAGE = "workflow_scripts/draftledger"
DEEP = "DRAFTLEDGER_TRIGGERS" in os.environ
DRAFTER = "block_lora"
# The ledger and the environment look anew whenever they run.
PROBES = {"ledger", "environment"}


@dataclass(frozen=True)
class Row:
    """An edit, the jobs that it plans, and those of them that are store hits; `real` rows are always carried out."""

    edit: Callable[[Workspace], None]
    planned: Callable[[Jobs], set[str]]
    hits: Callable[[Jobs], set[str]] = lambda jobs: set()
    real: bool = False


def code(name: str, old: str = "", new: str = "") -> Callable[[Workspace], None]:
    """Return an edit of a module: a text for another, or a new name at its end."""

    def edit(work: Workspace) -> None:
        if old:
            work.edit(name, old, new)
        else:
            path = work.folder / name
            path.write_text(path.read_text() + "\nEDITED = 1\n")

    return edit


def setting(path: str, value) -> Callable[[Workspace], None]:
    """Return an edit of one setting."""
    return lambda work: work.configure(path, value)


def more(path: str, step: int = 1) -> Callable[[Workspace], None]:
    """Return an edit that raises a number of the settings."""

    def edit(work: Workspace) -> None:
        block = work.config
        for key in path.split("."):
            block = block[key]
        work.configure(path, block + step)

    return edit


def seeds(change: Callable[[list[int]], list[int]]) -> Callable[[Workspace], None]:
    """Return an edit of the list of seeds."""
    return lambda work: work.configure("seeds", change(work.config["seeds"]))


def another_kind(work: Workspace) -> None:
    """Add the training code of a kind that no arm has."""
    path = work.folder / PACKAGE / "training"
    shutil.copy(path / "block_lora.py", path / "another_kind.py")


def trained_on(jobs: Jobs, *drafters: str) -> set[str]:
    """Return the jobs from the training of those drafters down."""
    decodes = jobs.decodes(lambda arm: has_seed(arm) and arm["drafter"] in (drafters or jobs.config["drafters"]))
    return jobs.adapters(*drafters) | decodes | jobs.timing() | SUMMARY


def one_more_seed(jobs: Jobs) -> set[str]:
    """Return the branch of the last seed, and the summary."""
    last = max(jobs.config["seeds"])
    branch = Jobs(jobs.config | {"seeds": [last]})
    return branch.adapters() | branch.decodes(has_seed) | branch.timing() | SUMMARY


def of_kind(kind: str) -> Callable[[Jobs], set[str]]:
    """Return the jobs from the decoding of one kind of arm down."""
    return lambda jobs: jobs.decodes(lambda arm: arm["kind"] == kind) | jobs.timing() | SUMMARY


LOSSES = (f"{PACKAGE}/training/losses.py", "mx.take_along_axis(logits, ids", "mx.take_along_axis(2.0 * logits, ids")
TABLE = {
    "loss": Row(code(*LOSSES), trained_on),
    "training code, same result": Row(
        code(f"{PACKAGE}/training/block_lora.py"),
        trained_on,
        hits=lambda jobs: trained_on(jobs) - jobs.adapters() - PROBES,
    ),
    "training code of another kind": Row(another_kind, lambda jobs: set()),
    "one training key": Row(more(f"drafters.{DRAFTER}.steps"), lambda jobs: trained_on(jobs, DRAFTER)),
    "teacher code, same result": Row(
        code("workflow_scripts/teacher.py"),
        lambda jobs: jobs.teacher() | trained_on(jobs),
        hits=lambda jobs: trained_on(jobs) - PROBES,
        real=True,
    ),
    "evaluation key": Row(more("decode.new_tokens"), lambda jobs: jobs.decodes() | jobs.timing() | SUMMARY),
    "drafting code of one kind": Row(code(f"{PACKAGE}/drafters/lookup.py"), of_kind("lookup")),
    "key of one arm": Row(setting("arms.lookup.ngram", 1), of_kind("lookup")),
    "timing key": Row(more("timing.repeats"), lambda jobs: jobs.timing() | SUMMARY),
    "bootstrap": Row(more("statistics.bootstrap", 100), lambda jobs: SUMMARY),
    "decision rules": Row(code("config/decision.yaml", "power: 0.8", "power: 0.9"), lambda jobs: SUMMARY),
    "page template": Row(
        code(f"{PACKAGE}/figures/page.html", "</body>", "<!-- end --></body>"), lambda jobs: {"report", "ledger"}
    ),
    "seed added": Row(seeds(lambda old: [*old, max(old) + 1]), one_more_seed),
    "seed removed": Row(seeds(lambda old: old[:-1]), lambda jobs: SUMMARY),
    "arm added": Row(setting("arms.added", {"kind": "oracle", "k": 2}), lambda jobs: {"decode added shared"} | SUMMARY),
}


@pytest.mark.parametrize("name", TABLE)
def test_an_edit_plans_the_jobs_that_it_can_change_and_computes_what_it_changed(work, name):
    row, marks = TABLE[name], work.marks()
    row.edit(work)
    jobs = Jobs(work.config)
    planned, hits = row.planned(jobs), row.hits(jobs)
    assert work.planned() == planned
    if DEEP or row.real:
        work.run("-j2")
        computed, found = work.done_since(marks)
        assert makers(found) == hits
        assert makers(computed) == planned - hits
    if DEEP:
        assert work.planned() == set()


def test_a_second_run_has_nothing_to_do_and_says_so_without_writing(work):
    def seen():
        files = (path for path in work.folder.rglob("*") if path.is_file() and ".snakemake" not in path.parts)
        return {path: path.stat().st_mtime_ns for path in files}

    before = seen()
    told = work.snakemake("-n")
    assert "Nothing to be done" in told
    assert "artefacts, 0 absent, 0 changed" in told
    assert seen() == before


def test_comments_and_docstrings_plan_nothing(work):
    deep = f"{PACKAGE}/provenance/digest.py"
    work.edit(deep, "MAX_HEADER_BYTES = 100_000_000", "# Larger than any.\nMAX_HEADER_BYTES = 100_000_000")
    work.edit(deep, "Return the sha256 of a file's", "Give the sha256 of a file's")
    work.edit("workflow_scripts/decode.py", "import sys\n", "import sys  # for the exit code\n")
    work.edit("rules/train.smk", "rule adapter:", "# Training.\nrule adapter:")
    work.configfile.write_text("# The smallest.\n" + work.configfile.read_text())
    assert work.planned() == set()


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


def test_a_clone_with_the_store_alone_runs_everything_and_computes_nothing(finished, clone):
    shutil.copytree(finished.store, clone.store)
    clone.run("-j2")
    computed, _ = clone.done_since({})
    assert makers(computed) == PROBES
    assert clone.contents() == finished.contents()
    assert (clone.results / "SHA256SUMS").read_bytes() == (finished.results / "SHA256SUMS").read_bytes()


def test_a_renamed_variable_plans_its_stage_until_the_edit_is_accepted(work):
    module = work.folder / PACKAGE / "statistics" / "resampling.py"
    module.write_text(module.read_text().replace("scaled", "product"))
    assert work.planned() == SUMMARY
    told = work.snakemake("-n", "-p", "-R", "summary", "--", f"results/{work.experiment}/summary.parquet")
    new = told.split("summary.py --root", 1)[1].split("--code ", 1)[1].split()[0]
    old = work.recipe("summary.parquet")["code"]
    work.tool("accept", "summary", "--old", old, "--new", new, "--reason", "a name nobody reads")
    assert old != new
    assert work.planned() == set()
    audit = json.loads(work.tool("audit", "--configfile", f"config/{work.experiment}.yaml", "--json"))
    assert [edit["stage"] for edit in audit["accepted"]] == ["summary"]


@pytest.mark.parametrize("kept", [True, False], ids=["manifest kept", "manifest gone too"])
def test_a_deleted_payload_is_planned_again_and_comes_back_from_the_store(work, kept):
    payload, marks = work.results / "decode" / "lookup" / "shared" / "rounds.parquet", work.marks()
    before = payload.read_bytes()
    payload.unlink()
    if not kept:
        payload.with_name("rounds.parquet.manifest.json").unlink()
    assert work.planned() == of_kind("lookup")(Jobs(work.config))
    if DEEP or not kept:
        work.run("-j1", payload.relative_to(work.folder).as_posix())
        assert work.done_since(marks) == (set(), {f"decode/lookup/shared/{n}.parquet" for n in ("rounds", "positions")})
        assert payload.read_bytes() == before


def test_a_setting_switched_there_and_back_computes_nothing_the_second_time(work):
    root, marks = (work.results / "SHA256SUMS").read_bytes(), work.marks()
    adapter = f"adapters/{DRAFTER}/seed1-launch0/adapter.safetensors"
    more(f"drafters.{DRAFTER}.steps")(work)
    work.run("-j1", f"results/{work.experiment}/{adapter}.manifest.json")
    computed, hits = work.done_since(marks)
    assert computed == {adapter, adapter.replace("adapter.safetensors", "history.parquet")}
    assert hits == set()
    marks = work.marks()
    more(f"drafters.{DRAFTER}.steps", -1)(work)
    work.run("-j2")
    computed, hits = work.done_since(marks)
    assert makers(computed) <= PROBES
    assert {
        adapter,
        f"decode/{trained_arm(work)}/seed1-launch0/rounds.parquet",
        "summary.parquet",
        "report.html",
    } <= hits
    assert (work.results / "SHA256SUMS").read_bytes() == root
    assert work.planned() == set()


def trained_arm(work: Workspace) -> str:
    """Return the first arm that decodes with the drafter's weights."""
    return next(name for name, arm in work.config["arms"].items() if has_seed(arm) and arm["drafter"] == DRAFTER)


def test_one_seed_is_drawn_again_only_when_the_store_is_told(work):
    """`-R` alone gives the draw there is, and says so; with the store refreshed the branch is really computed."""
    adapter = f"adapters/{DRAFTER}/seed1-launch0/adapter.safetensors"
    path, summary = f"results/{work.experiment}/{adapter}", f"results/{work.experiment}/summary.parquet"
    seed = Jobs(work.config | {"seeds": [1]})
    below = seed.decodes(lambda arm: has_seed(arm) and arm["drafter"] == DRAFTER) | seed.timing() | {"summary"}
    branch = {f"adapter {DRAFTER} 1 0"} | below
    assert work.planned("-R", path, "--", summary) == branch

    marks = work.marks()
    told = work.run("-j1", "-R", path, "--", f"{path}.manifest.json")
    assert f"{path}: store hit" in told
    assert work.done_since(marks)[0] == set()
    assert work.recipe(adapter)["draw"] == 0

    marks = work.marks()
    told = work.run("-j2", "-R", path, "--", summary, DRAFTLEDGER_STORE="refresh")
    assert f"{path}: computed" in told
    computed, hits = work.done_since(marks)
    assert (makers(computed), hits) == (branch, set())
    assert work.recipe(adapter)["draw"] == 1
    assert work.recipe("timing/seed1-launch0/session1.parquet")["draw"] in (0, 1)
