"""What differs between two results is named where it begins, and every number that moved has its chain."""

import dataclasses
import subprocess
import sys

import pytest

from draftledger.figures.differences import told
from draftledger.provenance.diff import compare
from draftledger.provenance.graph import Folder, read_graph
from draftledger.provenance.manifest import read_manifest
from draftledger.provenance.moves import moves
from draftledger.provenance.numbers import COLUMNS
from forge import Home, table

RULES = "config/decision.yaml"
BLANK = {"baseline": None, "scope": "all", "slot": None, "low": None, "high": None, "verdict": None, "unit": "ratio"}


def results(folder, *, rate=0.1, trained="weights", answers="rounds", timed="1 s", rules="d" * 64, code="c0"):
    """Make results of one trained arm and one without training; return them with their graph and numbers."""
    made = Home(folder)
    made.add("corpus/documents.txt", rule="corpus", spec={"kind": "synthetic", "seed": 1})
    made.add(
        "adapters/a.txt", trained, rule="adapter", spec={"drafter": {"rate": rate}}, reads=["corpus/documents.txt"]
    )
    made.add("decode/a.txt", answers, reads=["adapters/a.txt"], spec={"arm": "a"})
    made.add("decode/ar.txt", "ar", reads=["corpus/documents.txt"], spec={"arm": "ar"})
    made.add("timing/s.txt", timed, rule="timing", reads=["decode/a.txt", "decode/ar.txt"])
    rows = ["decode/a.txt", "decode/ar.txt", "timing/s.txt"]
    summary = table(**{name: [answers, timed] for name in COLUMNS})
    made.add("summary.parquet", summary, rule="summary", code=code, reads=rows, outside={RULES: rules})
    return made, read_graph(Folder(folder))


def number(home, metric, estimate, *roles):
    inputs = [read_manifest(home.folder / role).content for role in roles]
    return {**BLANK, "metric": metric, "arm": "a", "estimate": estimate, "inputs": inputs}


def numbers(home, accepted, speed):
    one = number(home, "accepted", accepted, "decode/a.txt")
    return [one, number(home, "speed", speed, "timing/s.txt"), number(home, "base", 1.0, "decode/ar.txt")]


@pytest.fixture
def before(tmp_path):
    """Return the results that others are compared with."""
    return results(tmp_path / "before")


def moved(one, other, *rows):
    differences = compare(one[1], other[1])
    found = moves((one[1], other[1]), rows, differences)
    assert "\n".join(told(differences, found))
    return {(move.before or move.after)["metric"]: set(move.causes) for move in found}


def test_equal_results_do_not_differ(before, tmp_path):
    assert compare(before[1], results(tmp_path / "after")[1]) == []


def test_a_setting_is_named_where_it_was_changed_and_numbers_moved_through_it(before, tmp_path):
    after = results(tmp_path / "after", rate=0.2, trained="others", answers="longer", timed="2 s")
    found = {each.role: each for each in compare(before[1], after[1])}
    assert found["adapters/a.txt"].own == ("drafter.rate: 0.1 → 0.2",)
    assert (found["decode/a.txt"].own, found["decode/a.txt"].through) == ((), ("adapters/a.txt",))
    assert "decode/ar.txt" not in found
    causes = moved(before, after, numbers(before[0], 2.0, 1.0), numbers(after[0], 3.0, 1.1))
    setting = {"adapters/a.txt: drafter.rate: 0.1 → 0.2", "adapters/a.txt: drawn again"}
    assert causes == {"accepted": setting, "speed": setting | {"timing/s.txt: drawn again"}}


def test_what_came_out_equal_carries_no_cause(before, tmp_path):
    after = results(tmp_path / "after", rate=0.2, timed="2 s")
    found = {each.role: each for each in compare(before[1], after[1])}
    assert found["adapters/a.txt"].same_content
    assert "decode/a.txt" not in found
    causes = moved(before, after, numbers(before[0], 2.0, 1.0), numbers(after[0], 2.0, 1.1))
    assert causes == {"speed": {"timing/s.txt: another draw of the same recipe"}}


def test_the_summary_s_own_changes_are_causes(before, tmp_path):
    after = results(tmp_path / "after", code="c1", rules="e" * 64)
    causes = moved(before, after, numbers(before[0], 2.0, 1.0), numbers(after[0], 2.5, 1.0))
    assert causes == {"accepted": {"summary.parquet: code c0 → c1", f"{RULES}: other content"}}


def test_a_repeatable_stage_that_did_not_repeat_is_said(before, tmp_path):
    after = results(tmp_path / "after", answers="others")
    (found,) = (each for each in compare(before[1], after[1]) if each.role == "decode/a.txt")
    assert found.own == ("the same recipe gave other content, and should not",)


def test_artefacts_and_numbers_of_one_side_are_named(before, tmp_path):
    after = results(tmp_path / "after")
    after[0].add("decode/new.txt", reads=["corpus/documents.txt"])
    after = (after[0], read_graph(Folder(after[0].folder)))
    assert [(each.role, each.kind) for each in compare(before[1], after[1])] == [
        ("decode/new.txt", "only in the second")
    ]
    assert [each.kind for each in compare(after[1], before[1])] == ["only in the first"]
    rows = numbers(after[0], 2.0, 1.0)
    found = moves((before[1], after[1]), (rows[:1], rows), [])
    assert [(move.before, move.size) for move in found] == [(None, float("inf"))] * 2


def test_the_largest_move_comes_first(before):
    rows = numbers(before[0], 2.0, 1.0)
    others = numbers(before[0], 2.2, 3.0)
    assert [move.size for move in moves((before[1], before[1]), (rows, others), [])] == [2.0, pytest.approx(0.1)]


def test_an_artefact_without_a_recipe_is_compared_by_content(before):
    one = before[1].artefacts["decode/a.txt"]
    bare = dataclasses.replace(one, recipe=None)
    graph = dataclasses.replace(before[1], artefacts={**before[1].artefacts, "decode/a.txt": bare})
    assert [each.own for each in compare(before[1], graph)] == [("no recipe",)]
    assert compare(graph, graph) == []


THREADS = """
import os, sys
from pathlib import Path
from draftledger.provenance.graph import Folder
from draftledger.provenance.numbers import read_numbers
threads = lambda: len(os.listdir("/proc/self/task"))
before = threads()
rows = read_numbers(Folder(Path(sys.argv[1])))
print(len(rows), threads() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads where Linux tells them")
def test_reading_the_numbers_leaves_no_thread_that_could_abort_the_command_at_its_end(before):
    command = [sys.executable, "-c", THREADS, str(before[0].folder)]
    path = next(place for place in sys.path if place.endswith("workflow_scripts"))
    done = subprocess.run(command, env={"PYTHONPATH": path}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "0"]
