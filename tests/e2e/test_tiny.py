"""The tiny experiment from nothing to its report: what it finds, and that nothing runs twice."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).resolve().parents[2]
CALL = [sys.executable, "-m", "snakemake", "--configfile", "config/tiny.yaml"]


def snakemake(folder: Path, *options: str) -> str:
    """Run Snakemake in a folder and return everything it said."""
    done = subprocess.run([*CALL, *options], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout + done.stderr


def sources(folder: Path) -> Path:
    """Copy the versioned files, as a clone has them."""
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The whole tiny experiment, report and ledger included, on two cores."""
    folder = sources(tmp_path_factory.mktemp("tiny"))
    snakemake(folder, "-j2")
    return folder


@pytest.fixture(scope="module")
def summary(finished) -> list[dict]:
    """The rows of its summary."""
    return pq.read_table(finished / "results/tiny/summary.parquet").to_pylist()


def only(summary: list[dict], **wanted) -> dict:
    """The one row that matches."""
    found = [row for row in summary if all(row[key] == value for key, value in wanted.items())]
    assert len(found) == 1, wanted
    return found[0]


def test_a_second_run_and_a_clone_with_the_results_have_nothing_to_do(finished, tmp_path):
    assert "Nothing to be done" in snakemake(finished, "-j2")
    clone = sources(tmp_path / "clone")
    shutil.copytree(finished / "results", clone / "results", symlinks=True)
    assert "Nothing to be done" in snakemake(clone, "-n")


def test_training_pays_in_acceptance_and_a_shuffled_teacher_does_not(summary):
    def gain(arm: str) -> dict:
        return only(summary, metric="acceptance_over_control", arm=arm, scope="all")

    trained, shuffled = gain("block_lora_k3"), gain("block_lora_shuffled")
    assert trained["low"] > 0
    assert trained["n_seeds"] == 3
    assert trained["population"] == "seeds and prompts"
    assert shuffled["low"] <= 0
    assert shuffled["verdict"] != "accepts more"


def test_every_arm_is_lossless_and_the_oracle_is_the_ceiling(summary, finished):
    arms = {row["arm"] for row in summary if row["metric"] == "exact_positions"}
    assert len(arms) == 9
    assert all(row["estimate"] == 1 for row in summary if row["metric"] == "exact_positions")
    assert all(row["estimate"] == 0 for row in summary if row["metric"] == "differs_from_ar")
    assert only(summary, metric="acceptance_rate", arm="oracle", scope="all")["estimate"] == 1
    manifest = json.loads((finished / "results/tiny/decode/ar/shared/positions.parquet.manifest.json").read_text())
    counts = manifest["counts"]
    assert counts["adversary_forced"] == counts["adversary_caught"] + counts["adversary_ties"] > 0


def test_the_target_says_varied_things(finished):
    rounds = pq.read_table(finished / "results/tiny/decode/ar/shared/rounds.parquet").to_pylist()
    answers: dict[str, set[int]] = {}
    for row in rounds:
        answers.setdefault(row["prompt"], set()).update(row["committed"])
    varied = [len(tokens) >= 12 for tokens in answers.values()]
    assert sum(varied) >= 0.8 * len(varied)


def test_bounds_hold_and_counts_close(finished):
    for path in sorted((finished / "results/tiny/teacher").glob("*.bounds.parquet")):
        for row in pq.read_table(path).to_pylist():
            assert 0 <= row["tail_mean"] <= row["tail_max"] < 1
            if row["dense"]:
                assert row["acceptance_low"] <= row["acceptance"] + 1e-4
                assert row["acceptance"] <= row["acceptance_high"] + 1e-4


def test_the_ledger_checks_with_a_standard_tool_and_the_page_stands_alone(finished):
    root = finished / "results/tiny"
    done = subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    page = (root / "report.html").read_text()
    assert "block_lora_k3" in page
    assert "<svg" in page
    assert 'src="http' not in page
    call = [sys.executable, "-m", "draftledger.cli", "verify", "--root", str(root)]
    assert subprocess.run(call, cwd=finished / "workflow_scripts").returncode == 0
