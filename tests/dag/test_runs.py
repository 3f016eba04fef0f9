"""What a re-run really computes, what it takes from the store, and that the same recipe gives the same content."""

import json
import shutil
import subprocess

import pytest

NANO = "config/nano.yaml"
# Probes look anew whenever they run; every other stage may be a hit.
PROBES = {"SHA256SUMS", "environment.json"}
SUMMARY = "results/nano/summary.parquet"
REPEATABLE = ("environment.json", "corpus/", "model/", "windows/", "teacher/", "decode/")
WITHOUT_OVERRIDE = ["--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]


def done_since(work, marks) -> tuple[set[str], set[str]]:
    """Return the artefacts computed and those taken from the store since `marks`."""
    records, now = work.records(), work.marks()
    ran = {name for name in records if marks.get(name) != now[name]}
    hits = {name for name in ran if records[name]["hit"]}
    return ran - hits, hits


def test_a_setting_switched_there_and_back_computes_nothing_the_second_time(work):
    root, marks = (work.results / "SHA256SUMS").read_bytes(), work.marks()
    adapter = "adapters/block_lora/seed1-launch0/adapter.safetensors"
    work.edit(NANO, "    steps: 4", "    steps: 5")
    work.run("-j1", f"results/nano/{adapter}.manifest.json")
    computed, hits = done_since(work, marks)
    assert computed == {adapter, adapter.replace("adapter.safetensors", "history.parquet")}
    assert hits == set()
    marks = work.marks()
    work.edit(NANO, "    steps: 5", "    steps: 4")
    work.run("-j2")
    computed, hits = done_since(work, marks)
    assert computed <= PROBES
    assert {adapter, "decode/block_lora/seed1-launch0/rounds.parquet", "summary.parquet", "report.html"} <= hits
    assert (work.results / "SHA256SUMS").read_bytes() == root
    assert work.planned() == set()


def test_a_deleted_payload_comes_back_from_the_store(work):
    payload = work.results / "decode" / "lookup" / "shared" / "rounds.parquet"
    bytes_before, marks = payload.read_bytes(), work.marks()
    payload.unlink()
    work.run("-j1", "results/nano/decode/lookup/shared/rounds.parquet")
    assert done_since(work, marks) == (set(), {f"decode/lookup/shared/{n}.parquet" for n in ("rounds", "positions")})
    assert payload.read_bytes() == bytes_before


def test_a_damaged_payload_is_refused_by_the_stage_that_would_read_it(work):
    payload = work.results / "timing" / "seed1-launch0" / "session1.parquet"
    payload.write_bytes(payload.read_bytes()[:-1] + b"\x00")
    work.edit(NANO, "bootstrap: 200", "bootstrap: 300")
    told = work.run("-j1", SUMMARY, check=False)
    assert "1 changed since written: results/nano/timing/seed1-launch0/session1.parquet" in told
    assert "session1.parquet: differs from its manifest; delete both and run its rule again" in told
    assert "Traceback" not in told


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv (util-linux) is needed to give up capabilities")
def test_a_user_without_override_of_permissions_can_run_again(work):
    prefix = ["setpriv", *WITHOUT_OVERRIDE, "--"]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not change its bounding set")
    marks = work.marks()
    work.edit(NANO, "bootstrap: 200", "bootstrap: 300")
    work.run("-j1", SUMMARY, prefix=prefix)
    assert done_since(work, marks) == ({"summary.parquet", "summary.tsv", "summary.html"}, set())


def recipes(work) -> dict[str, str]:
    suffix = ".recipe.json"
    return {
        path.relative_to(work.results).as_posix().removesuffix(suffix): json.loads(path.read_text())["key"]
        for path in work.results.rglob(f"*{suffix}")
    }


def test_one_job_at_a_time_gives_the_same_content_as_two(finished, clone):
    """The clone has a store of its own; where the recipes are equal, and the stage repeats, so are the contents."""
    arms = ("ar/shared", "lookup/shared", "block_lora/seed1-launch0")
    clone.run("-j1", *(f"results/nano/decode/{arm}/rounds.parquet" for arm in arms))
    keys, contents = recipes(clone), clone.contents()
    same = {name for name in keys if keys[name] == recipes(finished)[name]}
    repeatable = {name for name in same if name.startswith(REPEATABLE)}
    assert {name for name in keys if name.startswith(REPEATABLE) and "block_lora" not in name} <= repeatable
    assert len(repeatable) >= 17
    for name in repeatable:
        assert contents[name] == finished.contents()[name], name
