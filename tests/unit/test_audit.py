"""What today's settings, code and inputs no longer give is stale; what nothing explains is said to be so."""

import dataclasses
from pathlib import Path

import pytest

from draftledger.jobs import PlannedJob
from draftledger.provenance.audit import audit
from draftledger.provenance.code import in_force
from draftledger.provenance.digest import content_digest
from draftledger.provenance.graph import Folder, read_graph
from draftledger.provenance.manifest import read_manifest
from draftledger.provenance.natures import nature_of
from draftledger.provenance.recipe import recipe_path
from draftledger.provenance.repeats import Repeated, repeated
from draftledger.provenance.stage import Stage, stage
from draftledger.provenance.store import Store
from forge import Home, table

RULES = "config/decision.yaml"
BLANK = {"baseline": None, "scope": "all", "slot": None, "low": None, "high": None, "unit": "ratio", "estimate": 1.0}
JOBS = {
    "environment": ((), ("environment.json",)),
    "corpus": ((), ("corpus.txt",)),
    "adapter": (("corpus.txt", "environment.json"), ("a.txt",)),
    "decode": (("a.txt", "environment.json"), ("rounds.txt",)),
    "timing": (("rounds.txt", "environment.json"), ("session.txt",)),
}


def _path(name: str) -> str:
    return f"results/{name}"


def planned(**changed: str) -> list[PlannedJob]:
    """Return today's jobs; a rule's code is c0 unless it is named here."""
    found = [
        PlannedJob(rule, {}, changed.get(rule, "c0"), tuple(map(_path, reads)), tuple(map(_path, makes)))
        for rule, (reads, makes) in JOBS.items()
    ]
    rows = ("results/rounds.txt", "results/session.txt", RULES)
    return [*found, PlannedJob("summary", {}, changed.get("summary", "c0"), rows, ("results/summary.parquet",))]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return results in which every job ran."""
    monkeypatch.chdir(tmp_path)
    Path("config").mkdir()
    Path(RULES).write_text("power: 0.8\n")
    made = Home(Path("results"))
    for rule, (reads, names) in JOBS.items():
        for name in names:
            made.add(name, "{}" if name.endswith("json") else rule, rule=rule, reads=reads)
    summarise(made)
    return made


def summarise(home, code="c0"):
    outside = {RULES: content_digest(Path(RULES))}
    home.add(
        "summary.parquet", table(x=[1]), rule="summary", code=code, reads=["rounds.txt", "session.txt"], outside=outside
    )


def judge(home, jobs, **row):
    numbers = [
        {**BLANK, "metric": metric, "arm": "a", "inputs": [read_manifest(home.folder / name).content], **row}
        for metric, name in (("accepted", "rounds.txt"), ("speed", "session.txt"))
    ]
    found = audit(jobs, read_graph(Folder(home.folder)), numbers, root="results")
    assert {"counts", "not_ok"} == set(found.record()["numbers"])
    states = {each.name: each.state for each in found.artefacts if each.state != "ok"}
    return states, [each.state for each in found.numbers], {each.name: each.own for each in found.artefacts if each.own}


def test_after_a_run_everything_holds(home):
    assert judge(home, planned()) == ({}, ["ok", "ok"], {})


def test_changed_code_makes_its_artefacts_stale_and_what_follows(home):
    states, numbers, own = judge(home, planned(decode="c1"))
    assert states == dict.fromkeys(["rounds.txt", "session.txt", "summary.parquet"], "stale")
    assert (numbers, own) == (["stale", "stale"], {"rounds.txt": ("code c0 → c1",)})
    states, numbers, _ = judge(home, planned(timing="c1"))
    assert (set(states), numbers) == ({"session.txt", "summary.parquet"}, ["ok", "stale"])


def test_changed_rules_or_code_of_the_summary_make_every_number_stale(home):
    Path(RULES).write_text("power: 0.9\n")
    states, numbers, own = judge(home, planned())
    assert (states, numbers) == ({"summary.parquet": "stale"}, ["stale", "stale"])
    assert own == {"summary.parquet": (f"{RULES} is another, or gone",)}


def test_another_environment_makes_what_reads_it_stale(home):
    states, numbers, _ = judge(home, planned(environment="c1"))
    assert set(states) == {"environment.json", "a.txt", "rounds.txt", "session.txt", "summary.parquet"}
    assert numbers == ["stale", "stale"]
    home.add("environment.json", '{"threads": 2}', rule="environment")
    assert judge(home, planned())[2]["a.txt"] == ("environment.json is another, or gone",)


def test_one_more_or_fewer_inputs_make_stale(home):
    jobs = planned()
    jobs[-1] = dataclasses.replace(jobs[-1], inputs=(*jobs[-1].inputs, "results/new.txt"))
    assert judge(home, jobs)[2] == {"summary.parquet": ("now reads new.txt",)}


def test_what_is_not_here_is_absent_and_what_has_no_recipe_unexplained(home):
    (home.folder / "a.txt").unlink()
    assert judge(home, planned())[:2] == ({"a.txt": "absent"}, ["ok", "ok"])
    recipe_path(home.folder / "a.txt").unlink()
    states, numbers, _ = judge(home, planned())
    assert (states["a.txt"], states["rounds.txt"], numbers) == ("unexplained", "stale", ["stale", "stale"])


def test_a_number_from_what_the_summary_did_not_read_is_unexplained(home):
    assert judge(home, planned(), inputs=["f" * 64])[1] == ["unexplained", "unexplained"]
    recipe_path(home.folder / "summary.parquet").unlink()
    assert judge(home, planned())[1] == ["unexplained", "unexplained"]


def test_accepted_edits_count_while_they_lead_to_todays_code():
    edits = [{"stage": "decode", "old": "a", "new": "b"}, {"stage": "decode", "old": "b", "new": "c"}]
    assert in_force(edits, {("decode", "a")}) == edits
    assert in_force(edits, {("decode", "d"), ("timing", "a")}) == []


# --- recipes with several contents -----------------------------------------------------------------------------------


def test_draws_may_differ_and_other_stages_may_not(home, tmp_path):
    store, texts = Store(tmp_path / "store"), iter("abcd")
    for rule in ("adapter", "decode"):
        job = Stage(home.recipe(rule), (tmp_path / "elsewhere" / f"{rule}.txt",), "draw")
        for refresh in (False, True):
            stage(
                job,
                lambda folder, _, job=job: write(folder / job.outputs[0].name, next(texts)),
                store=store,
                refresh=refresh,
            )
    drawn, other = repeated([], store)
    assert (drawn.rule, drawn.contents, drawn.expected) == ("adapter", 2, True)
    assert (other.rule, other.contents, other.expected) == ("decode", 2, False)


def write(path, text):
    path.write_text(text)


def test_two_results_of_one_recipe_are_compared(home, tmp_path):
    other = Home(tmp_path / "other")
    other.add("corpus.txt", "else", rule="corpus")
    graphs = [read_graph(Folder(each.folder)) for each in (home, other)]
    (found,) = repeated(graphs, Store(tmp_path / "none"))
    assert (found.rule, found.name, found.contents) == ("corpus", "corpus.txt", 2)
    assert found.record() == {**dataclasses.asdict(found), "expected": False}
    assert Repeated("timing", "k", "s", 2).expected


def test_every_script_has_the_nature_of_its_rule():
    for script in sorted((Path(__file__).resolve().parents[2] / "workflow_scripts").glob("*.py")):
        text = script.read_text()
        said = next((nature for nature in ("draw", "probe") if f'nature="{nature}"' in text), "repeatable")
        assert nature_of(script.stem) == said, script.name
