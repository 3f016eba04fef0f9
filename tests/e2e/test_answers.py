"""A DFlash drafter from the target's own answers to its summary, and what follows an edit of either."""

import pyarrow.parquet as pq
import pytest

from workspace import ROOT, Workspace, checkout

TEMPLATES = """\
schema: draftledger.questions/1
lists: {thing: [door, lamp, boat, kettle, owl, rope]}
kinds:
  chat: ["Describe {number:1-999} {thing} and {thing2}.", "What is a {thing} at {number:100-999}?"]
"""
CONTINUATIONS = {
    "templates": "config/questions/few.yaml",
    "kinds": {"chat": 1.0},
    "words": {},
    "questions": 80,
    "new_tokens": 16,
    "temperature": 1.0,
    "sampled": 0.5,
    "batch": 8,
    "jobs": 2,
    "seed": 1,
    "shortest": 8,
    "loop_ngram": 3,
    "loops": 1.0,
}
SHAPE = {"layers": 1, "heads": 2, "inner": 16, "block": 4, "taps": 2, "attention": "full", "mask_id": 3}
DRAFTER = {
    "kind": "dflash",
    "shape": SHAPE,
    "anchors": 4,
    "batch": 4,
    "loss": {"kl": 1.0},
    "gamma": 4.0,
    "teacher": "true_teacher",
    "live": True,
    **{"steps": 6, "learning_rate": 1e-3, "warmup": 1, "clip": 1.0, "validate_every": 3, "checkpoint_every": 3},
}
ARM = {"kind": "dflash", "k": 0, "drafter": "dflash"}


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Workspace:
    """Nano with a DFlash arm that learns answers, run to its summary and ledger."""
    work = checkout(ROOT, tmp_path_factory.mktemp("answers"))
    (work.folder / CONTINUATIONS["templates"]).write_text(TEMPLATES)
    work.configure("continuations", CONTINUATIONS)
    work.configure("windows", {**work.config["windows"], "length": 64, "train": 32, "validation": 4})
    work.configure("drafters", {"dflash": DRAFTER})
    kept = {name: arm for name, arm in work.config["arms"].items() if arm["kind"] in ("ar", "mlx_lm_ar", "lookup")}
    untrained = {**ARM, "untrained": True}
    work.configure("arms", kept | {"dflash": {**ARM, "control": "untrained"}, "untrained": untrained})
    work.configure("timing.arms", ["ar", "ar_twin", "mlx_lm_ar", "lookup", "dflash"])
    work.run("-j2")
    return work


def test_windows_are_questions_and_the_targets_answers(work):
    rows = {}
    for path in sorted((work.results / "continuations").glob("*.parquet")):
        rows |= {row["number"]: row for row in pq.read_table(path).to_pylist()}
    assert sorted(rows) == list(range(CONTINUATIONS["questions"]))
    assert {row["temperature"] for row in rows.values()} == {0.0, 1.0}
    for window in pq.read_table(work.results / "windows" / "train.parquet").to_pylist():
        row = rows[int(window["document"].removeprefix("question/"))]
        assert window["tokens"][: window["valid"]] == (row["prompt"] + row["answer"])[:64]
        assert window["first"] == len(row["prompt"])


def test_the_drafter_is_measured_and_exact(work):
    summary = pq.read_table(work.results / "summary.parquet").to_pylist()
    arms = {row["arm"] for row in summary}
    assert {"dflash", "untrained"} <= arms
    verdicts = {row["arm"]: row["verdict"] for row in summary if row["verdict"]}
    assert "dflash" in verdicts
    assert "not lossless" not in verdicts.values()
    assert len(list((work.results / "adapters" / "dflash").glob("seed*"))) == len(work.config["seeds"])


def test_what_chooses_answers_asks_none_again(work):
    work.configure("continuations.loops", 0.99)
    planned = work.planned()
    assert "windows" in planned
    assert not [job for job in planned if job.startswith("continuations")]
    work.configure("continuations.new_tokens", 17)
    assert [job for job in sorted(work.planned()) if job.startswith("continuations")] == [
        "continuations 0000",
        "continuations 0001",
    ]
    (work.folder / CONTINUATIONS["templates"]).write_text(TEMPLATES.replace("owl", "cat"))
    work.configure("continuations", CONTINUATIONS)
    assert len([job for job in work.planned() if job.startswith("continuations")]) == 2
