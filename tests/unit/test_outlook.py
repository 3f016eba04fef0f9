"""The dry-run's line counts what is to be done and what the store has of it, from stats and small reads alone."""

import os
import time
from pathlib import Path

import pytest

from draftledger.jobs import PlannedJob
from draftledger.provenance.glance import glance
from draftledger.provenance.manifest import describe, read_manifest
from draftledger.provenance.outlook import SMALL, Outlook, outlook, status
from draftledger.provenance.recipe import Input, Recipe
from draftledger.provenance.stage import Stage, stage
from draftledger.provenance.store import Store

PROMPTS = "config/prompts.jsonl"


@pytest.fixture(autouse=True)
def working(tmp_path, monkeypatch):
    """Work in a folder with one prompt file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / PROMPTS).write_text("{}\n")
    return tmp_path


def job(rule, *inputs, makes, code="c0", spec=None):
    return PlannedJob(rule, spec or {}, code, tuple(inputs), tuple(f"results/{name}" for name in makes))


def line(*, decode="c0", corpus="c0", seed=1):
    """Return five jobs, one after another."""
    rounds = job("decode", "results/model.txt", "results/a.txt", PROMPTS, makes=["rounds.txt"], code=decode)
    return [
        job("environment", makes=["environment.json"]),
        job("corpus", makes=["corpus.txt"], code=corpus),
        job("model", "results/corpus.txt", "results/environment.json", makes=["model.txt", "tokens.txt"]),
        job("adapter", "results/model.txt", makes=["a.txt"], spec={"seed": seed}),
        rounds,
    ]


def run(jobs, store):
    """Run jobs as the rules do: each output says its own name and what makes it what it is."""
    for each in jobs:
        paths = [path for path in each.inputs if path.startswith("results/")]
        contents = {path.removeprefix("results/"): read_manifest(Path(path)).content for path in paths}
        environment = contents.pop("environment.json", None)
        outside = [Input(path, describe(Path(path)).content) for path in each.inputs if path not in paths]
        inputs = sorted([*(Input(*item) for item in contents.items()), *outside], key=lambda item: item.role)
        recipe = Recipe(each.rule, each.spec, each.code, environment, tuple(inputs))
        nature = {"adapter": "draw", "environment": "probe"}.get(each.rule, "repeatable")
        outputs = tuple(map(Path, each.outputs))

        def compute(folder, _, outputs=outputs, recipe=recipe):
            for output in outputs:
                (folder / output.name).write_text("{}" if output.suffix == ".json" else recipe.key)

        stage(Stage(recipe, outputs, nature), compute, store=store)


@pytest.fixture
def store(working):
    """Return the store of five jobs that ran."""
    made = Store(Path("results/store"))
    run(line(), made)
    return made


def seen(jobs, store) -> Outlook:
    paths = [path for each in jobs for path in each.outputs]
    return outlook(jobs, glance(paths), root="results", store=store)


def test_nothing_is_planned_after_a_run(store):
    assert seen(line(), store) == Outlook(0, 0, 0)
    assert status(line(), root="results", store=store.root) == "ledger: 6 artefacts, 0 absent, 0 changed"


def test_a_changed_job_is_planned_and_what_follows_is_unknown(store):
    assert seen(line(corpus="c1"), store) == Outlook(4, 0, 3)
    assert seen(line(decode="c1"), store) == Outlook(1, 0, 0)
    assert seen(line(seed=2), store) == Outlook(2, 0, 1)
    told = status(line(seed=2), root="results", store=store.root)
    assert told.endswith("; 0 of 2 planned jobs are in the store, 1 unknown until their inputs are made")


def test_a_setting_switched_back_is_in_the_store_all_the_way(store):
    run(line(corpus="c1"), store)
    assert seen(line(), store) == Outlook(4, 4, 0)
    assert status(line(), root="results", store=store.root).endswith("; 4 of 4 planned jobs are in the store")


def test_a_deleted_branch_is_in_the_store(store):
    for path in (Path("results/model.txt"), Path("results/rounds.txt.manifest.json")):
        path.unlink()
    assert seen(line(), store) == Outlook(3, 3, 0)


def test_a_probe_is_never_a_hit(store):
    Path("results/environment.json").unlink()
    assert seen(line(), store) == Outlook(4, 0, 3)


def test_an_index_without_its_blobs_or_that_cannot_be_read_is_no_hit(store):
    Path("results/rounds.txt").unlink()
    assert seen(line(), store) == Outlook(1, 1, 0)
    for blob in store.root.glob("blobs/*/*"):
        blob.unlink()
    assert seen(line(), store) == Outlook(1, 0, 0)
    for entry in store.root.glob("actions/*"):
        entry.write_text("{")
    assert seen(line(), store) == Outlook(1, 0, 0)


def test_a_changed_payload_or_recipe_is_planned(store):
    Path("results/a.txt").write_text("by hand")
    assert seen(line(), store) == Outlook(2, 2, 0)
    Path("results/corpus.txt.recipe.json").write_text("{")
    assert seen(line(), store).planned == 4


def test_the_content_of_a_small_file_outside_counts(store):
    Path(PROMPTS).write_text("[]\n")
    assert seen(line(), store) == Outlook(1, 0, 0)
    Path(PROMPTS).unlink()
    assert seen(line(), store) == Outlook(1, 0, 1)


def test_a_large_file_outside_is_believed_by_its_time(store, working):
    source = working / "config" / "weights.bin"
    source.write_bytes(bytes(SMALL + 1))
    old = read_manifest(Path("results/a.txt"))
    own = job("model", "config/weights.bin", makes=["own.txt"])
    run([own], store)
    assert seen([own], store) == Outlook(0, 0, 0)
    os.utime(source, ns=(2**62, 2**62))
    assert seen([own], store) == Outlook(1, 0, 1)
    assert read_manifest(Path("results/a.txt")) == old


def test_nothing_is_written(store, working):
    before = {path: path.stat().st_mtime_ns for path in working.rglob("*")}
    status(line(corpus="c1"), root="results", store=store.root)
    assert {path: path.stat().st_mtime_ns for path in working.rglob("*")} == before


def test_a_thousand_artefacts_are_seen_in_a_fifth_of_a_second(store):
    one = Path("results/rounds.txt")
    names = [f"many{number}.txt" for number in range(1000)]
    for name in names:
        os.link(one, f"results/{name}")
        for suffix in (".manifest.json", ".recipe.json"):
            Path(f"results/{name}{suffix}").write_bytes(Path(f"{one}{suffix}").read_bytes())
    decode = line()[-1]
    jobs = [*line()[:-1], *(PlannedJob("decode", {}, "c0", decode.inputs, (f"results/{name}",)) for name in names)]
    started = time.process_time()
    told = status(jobs, root="results", store=store.root)
    taken = time.process_time() - started
    assert told == "ledger: 1005 artefacts, 0 absent, 0 changed"
    assert taken < 0.4, taken  # 0.2 on an idle machine
