"""Decode's and timing's tables: whole, in their schemas, balanced, and held to each other."""

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import mlx.core as mx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from draftledger.decoding.loop import Round
from draftledger.errors import ConfigError, CorruptError
from draftledger.measurement.decoding import Question, decode_prompts, load_prompt_ids
from draftledger.measurement.exactness import Position
from draftledger.measurement.prompts import Prompt
from draftledger.measurement.rows import POSITIONS, ROUNDS, answers, position_rows, round_row
from draftledger.measurement.tables import by_role, load_all
from draftledger.measurement.telemetry import telemetry, timing_lock
from draftledger.measurement.timing import COST, TIMING, cost_table, load_arms, time_session
from draftledger.models.load import Target
from draftledger.provenance.job import Job
from draftledger.provenance.manifest import describe, read_manifest, write_manifest
from draftledger.provenance.tables import counts_of, write_table
from targets import VOCABULARY, dense, hybrid, prompt
from teachers import MODULES, noisy_weights

TARGETS = {"hybrid": hybrid, "dense": dense}
DRAFTER = {"name": "lora", "kind": "block_lora", "modules": MODULES, "rank": 4, "scale": 1.0}
ARMS = {
    "ar": {"kind": "ar"},
    "lookup": {"kind": "lookup", "k": 2, "ngram": 1},
    "lora": {"kind": "block_lora", "k": 2, "noise_bound": VOCABULARY, "drafter": DRAFTER},
    "oracle": {"kind": "oracle", "k": 3},
}
DECODE = {"new_tokens": 7, "noise": [1, 2], "allowed_ulp": 0.0, "adversary_prompts": 1}
TIMED = {"repeats": 2, "staged_prompts": 1, "seed": 1}


def questions() -> list[Question]:
    return [Question(Prompt(f"p{i}", "ab"[i % 2], "report", "text"), prompt(5 + i, key=i).tolist()) for i in range(4)]


def target(name: str = "dense") -> Target:
    return Target(TARGETS[name](), None, {}, frozenset(), VOCABULARY, 64, "float32")  # pyright: ignore[reportArgumentType]


class Bench:
    """Decodes and times the arms of one folder as the workflow's jobs would."""

    def __init__(self, folder: Path, name: str = "dense") -> None:
        self.folder, self.target = folder, target(name)
        self.inputs = {"adapter/lora/seed1-launch1/adapter.safetensors": folder / "lora" / "s" / "adapter.safetensors"}
        path = next(iter(self.inputs.values()))
        path.parent.mkdir(parents=True)
        mx.save_safetensors(str(path), noisy_weights(self.target.model))

    def job(self, spec: dict) -> Job:
        return Job({"decode": DECODE, "seed": None, "launch": None} | spec, self.inputs, None, self.folder, self.folder)

    def decode(self, arm: str, *, prompts: int = 4) -> tuple[pa.Table, pa.Table]:
        seed = {"seed": 1, "launch": 1} if arm == "lora" else {}
        tables = decode_prompts(
            self.job({"arm": arm, "settings": ARMS[arm], **seed}), self.target, questions()[:prompts]
        )
        for name, table in zip(("rounds", "positions"), tables, strict=True):
            role = f"decode/{arm}/{'seed1-launch1' if seed else 'shared'}/{name}.parquet"
            self.keep(role, table)
        return tables

    def keep(self, role: str, table: pa.Table) -> None:
        self.inputs[role] = self.folder / role
        write_table(table, self.inputs[role])
        write_manifest(self.inputs[role], describe(self.inputs[role]))

    def time(self, *arms: str) -> pa.Table:
        timed = {arm: ARMS[arm] for arm in arms or ARMS}
        job = self.job({"arms": timed, "timing": TIMED, "session": 1, "seed": 1, "launch": 1})
        return time_session(job, self.target, questions(), load_arms(job, self.target))


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Bench:
    made = Bench(tmp_path_factory.mktemp("bench"))
    for arm in ARMS:
        made.decode(arm)
    return made


def rows(bench: Bench, arm: str, name: str) -> pa.Table:
    return next(pq.read_table(p) for r, p in bench.inputs.items() if r.startswith(f"decode/{arm}/") and name in r)


@pytest.mark.parametrize("name", TARGETS)
def test_all_arms_tell_the_same_answers_and_every_position_is_ok(name, tmp_path):
    made = Bench(tmp_path, name)
    told = {arm: made.decode(arm, prompts=2) for arm in ARMS}
    expected = answers(told["ar"][0])
    assert {len(tokens) for tokens in expected.values()} == {DECODE["new_tokens"]}
    for arm, (rounds, positions) in told.items():
        assert rounds.schema.equals(ROUNDS)
        assert positions.schema.equals(POSITIONS)
        noises = {1, 2} if arm == "lora" else {1}
        assert answers(rounds) == {(p, n): expected[p, 1] for p, _ in expected for n in noises}
        assert set(positions["ok"].to_pylist()) == {True}
        assert set(positions["differs_from_ar"].to_pylist()) == {None if arm == "ar" else False}
        assert positions.num_rows == len(expected) * len(noises) * DECODE["new_tokens"]


@pytest.mark.parametrize("arm", ARMS)
def test_rounds_close_and_agree_with_positions(bench, arm):
    rounds, positions = rows(bench, arm, "rounds"), rows(bench, arm, "positions")
    assert counts_of(rounds)["answers"] == len(answers(rounds))
    counts = counts_of(positions)
    assert counts["positions"] == positions.num_rows
    assert counts["adversary_forced"] == counts["adversary_caught"] + counts["adversary_ties"]
    emitted = [token for who in answers(rounds).values() for token in who]
    assert emitted == positions["token"].to_pylist()
    for row in rounds.to_pylist():
        assert row["offered"] == len(row["draft"]) - row["free"]
        assert row["free_accepted"] == row["free"]
        assert 0 <= row["accepted"] <= row["offered"]
        full = 1 if row["round"] == -1 else row["accepted"] + 1 + row["free"]
        assert row["truncated"] == (len(row["committed"]) < full)
        assert row["verify_forwards"] == 1
        assert row["draft_forwards"] == int(arm == "lora" and row["round"] >= 0)
    stops = Counter((row["prompt"], row["noise"]) for row in rounds.to_pylist() if row["stop"])
    assert set(stops.values()) == {1}
    assert set(rounds["seed"].to_pylist()) == ({1} if arm == "lora" else {None})


def test_the_oracle_needs_the_baselines_answers(tmp_path):
    with pytest.raises(ConfigError, match="answers of arm `ar`"):
        Bench(tmp_path).decode("oracle")


def test_a_round_row_has_the_schemas_fields():
    row = round_row(Round(2, 9, (1, 2, 3), 1, 1, 1, (1, 2, 8), False, 1, 0, "eos"))
    assert set(row) == set(ROUNDS.names) - {"arm", "seed", "launch", "prompt", "category", "noise"}
    assert (row["offered"], row["draft"], row["stop"]) == (2, [1, 2, 3], "eos")


def differs(tokens: list[int], ar: list[int] | None) -> list[bool | None]:
    found = [Position(token, token, 0.0, 0, 1.0) for token in tokens]
    made = list(position_rows(found, ar=ar, allowed=0.0))
    assert all(set(row) == set(POSITIONS.names) - {"arm", "seed", "launch", "prompt", "noise"} for row in made)
    return [row["differs_from_ar"] for row in made]


def test_a_difference_from_the_baseline_is_told_once():
    assert differs([1, 2, 3], None) == [None] * 3
    assert differs([1, 2, 3], [1, 2, 3]) == [False] * 3
    assert differs([1, 9, 3, 4], [1, 2, 3, 4]) == [False, True, None, None]
    assert differs([1, 2, 3], [1]) == [False, True, None]
    assert differs([1], []) == [True]


def test_ok_is_the_margin_against_what_is_allowed():
    found = [Position(1, 1, 0.0, 2, 5.0), Position(2, 1, 1.0, 2, 1.0), Position(2, 1, 1.5, 2, 1.5)]
    assert [row["ok"] for row in position_rows(found, ar=None, allowed=1.0)] == [True, True, False]


def test_answers_put_rounds_in_order():
    said = [("a", 1, 1, [3, 4]), ("a", 1, -1, [1]), ("b", 1, -1, [7]), ("a", 1, 0, [2]), ("a", 2, -1, [9])]
    table = pa.table(dict(zip(("prompt", "noise", "round", "committed"), zip(*said, strict=True), strict=True)))
    assert answers(table) == {("a", 1): (1, 2, 3, 4), ("b", 1): (7,), ("a", 2): (9,)}


@pytest.fixture(scope="module")
def session(bench) -> pa.Table:
    return bench.time()


def test_timing_rows_have_their_schema_and_close(session):
    assert session.schema.equals(TIMING)
    assert counts_of(session)["answers"] == session.num_rows == len(ARMS) * (2 * 4 + 1)
    for row in session.to_pylist():
        assert 0 < row["prefill_s"] == row["ttft_s"] < row["total_s"]
        assert row["decode_s"] == pytest.approx(row["total_s"] - row["ttft_s"])
        assert row["new_tokens"] == DECODE["new_tokens"]
        assert row["peak_bytes"] > 0
        assert row["noise"] == (1 + row["repeat"] % 2 if row["arm"] == "lora" else 1)


def test_only_staged_rows_have_stages_and_only_those_the_arm_has(session):
    stages = ("draft_s", "verify_s", "commit_s")
    for row in session.to_pylist():
        has = tuple(row[name] is not None for name in stages)
        drafts = row["mode"] == "staged" and row["arm"] != "ar"
        assert has == ((drafts, row["mode"] == "staged", drafts))
    staged = [row for row in session.to_pylist() if row["mode"] == "staged"]
    assert {row["prompt"] for row in staged} == {"p0"}
    assert all(sum(row[name] or 0 for name in stages) <= row["total_s"] for row in staged)


def test_each_arm_stands_at_each_place_equally_often(session):
    plain = [row for row in session.to_pylist() if row["mode"] == "plain"]
    places = Counter((row["arm"], row["order"]) for row in plain)
    assert places == {(arm, place): 2 for arm in ARMS for place in range(len(ARMS))}
    turns: dict[tuple[int, str], list[str]] = {}
    for row in plain:
        turns.setdefault((row["repeat"], row["prompt"]), []).append(row["arm"])
    assert all(sorted(turn) == sorted(ARMS) for turn in turns.values())
    assert turns[0, "p0"] != turns[1, "p0"]
    follows = Counter(pair for turn in turns.values() for pair in pairwise(turn))
    assert set(follows.values()) == {2}  # each arm follows each other one equally often


@pytest.mark.parametrize("fault", ["other token", "no record"])
def test_timing_refuses_tokens_that_decode_did_not_record(tmp_path, fault):
    made = Bench(tmp_path)
    for arm in ("ar", "lookup"):
        made.decode(arm)
    role = "decode/lookup/shared/rounds.parquet"
    table = pq.read_table(made.inputs[role])
    kept = [row for row in table.to_pylist() if fault == "other token" or row["prompt"] != "p2"]
    if fault == "other token":
        kept[-1]["committed"][-1] = (kept[-1]["committed"][-1] + 1) % VOCABULARY
    made.keep(role, pa.Table.from_pylist(kept, schema=table.schema))
    with pytest.raises(CorruptError, match=r"arm lookup on p\d gave other tokens than decode"):
        made.time("ar", "lookup")


def test_costs_are_told_for_every_width_that_an_arm_runs(bench):
    job = bench.job({"arms": ARMS})
    table = cost_table(bench.target, questions(), load_arms(job, bench.target))
    assert table.schema.equals(COST)
    widths = [(row["kind"], row["width"]) for row in table.to_pylist()]
    assert widths == [("verify", w) for w in range(1, 6)] + [("draft", w) for w in range(2, 6)]
    assert min(table["milliseconds"].to_pylist()) > 0


def test_the_summarys_tables_hold_all_rows_and_name_what_is_behind_them(bench, session):
    bench.keep("timing/seed1-launch1/session1.parquet", session)
    job = bench.job({})
    total = sum(rows(bench, arm, "rounds").num_rows for arm in ARMS)
    assert load_all(job, "rounds.parquet").num_rows == total
    assert load_all(job, "timing").num_rows == session.num_rows
    roles = by_role(job)
    assert set(roles) == {"timing", *(f"{kind}:{arm}" for kind in ("rounds", "positions") for arm in ARMS)}
    path = bench.inputs["decode/ar/shared/rounds.parquet"]
    assert roles["rounds:ar"] == [read_manifest(path).content]


def test_rows_that_vanish_after_their_manifest_was_written_are_noticed(tmp_path):
    made = Bench(tmp_path)
    rounds, _ = made.decode("ar")
    write_table(rounds.slice(1), made.inputs["decode/ar/shared/rounds.parquet"])
    with pytest.raises(CorruptError, match="its manifests say"):
        load_all(made.job({}), "rounds.parquet")


def test_a_prompt_without_room_is_refused(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"id": "a", "category": "c", "split": "report", "text": "hello"}\n')

    class Words:
        def chat(self, text: str) -> list[int]:
            return [1] * 60

    spec = {"decode": {**DECODE, "prompts": "p.jsonl", "split": "report", "per_category": 1, "categories": None}}
    job = Job(spec, {"p.jsonl": path}, None, tmp_path, tmp_path)
    small = Target(dense(), Words(), {}, frozenset(), VOCABULARY, 66, "float32")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="context of 66 is too short"):
        load_prompt_ids(job, small)
    roomy = Target(dense(), Words(), {}, frozenset(), VOCABULARY, 67, "float32")  # pyright: ignore[reportArgumentType]
    assert len(load_prompt_ids(job, roomy)) == 1


def test_telemetry_is_read_where_it_can_be_and_null_elsewhere():
    found = telemetry()
    assert set(found) == {"load1", "cpu_mhz", "temperature_c"} <= set(TIMING.names)
    assert all(value is None or isinstance(value, float) for value in found.values())
    assert found["load1"] >= 0


HOLD = """
from draftledger.measurement.telemetry import timing_lock
print("asks", flush=True)
with timing_lock():
    print("held")
"""


def test_a_second_process_waits_for_the_timing_lock(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    with timing_lock():
        child = subprocess.Popen([sys.executable, "-c", HOLD], env=environment, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "asks\n"
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=0.4)
    out, _ = child.communicate(timeout=20)
    assert out == "held\n"
    assert child.returncode == 0
