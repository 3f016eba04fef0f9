"""What a re-run refuses, who may run it, and that the same recipe gives the same content."""

import json
import shutil
import subprocess

import pytest

NANO = "config/nano.yaml"
SUMMARY = "results/nano/summary.parquet"
REPEATABLE = ("environment.json", "corpus/", "model/", "windows/", "teacher/", "decode/")
WITHOUT_OVERRIDE = ["--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]


def test_a_damaged_payload_is_refused_by_the_stage_that_would_read_it(work):
    payload = work.results / "timing" / "seed1-launch0" / "session1.parquet"
    payload.write_bytes(payload.read_bytes()[:-1] + b"\x00")
    work.edit(NANO, "bootstrap: 200", "bootstrap: 300")
    told = work.run("-j1", SUMMARY, check=False)
    assert "1 changed since it was written: results/nano/timing/seed1-launch0/session1.parquet" in told
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
    assert work.done_since(marks) == ({"summary.parquet", "summary.tsv", "summary.html"}, set())


def recipes(work) -> dict[str, str]:
    return {name: json.loads(path.read_text())["key"] for name, path in work.files(".recipe.json")}


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
