"""One byte changed in a finished run, wherever it is, is named; and nothing else is."""

import shutil
from pathlib import Path

import pytest

from draftledger.provenance.verify import verify

ROUNDS = "decode/lookup/shared/rounds.parquet"
PAYLOADS = {
    "environment": "environment.json",
    "corpus": "corpus/documents.parquet",
    "weights": "model/model.safetensors",
    "model config": "model/config.json",
    "tokenizer": "model/tokenizer.json",
    "tokenizer config": "model/tokenizer_config.json",
    "windows": "windows/train.parquet",
    "overlap": "windows/overlap.parquet",
    "teacher shard": "teacher/train-0000.safetensors",
    "bounds": "teacher/train-0000.bounds.parquet",
    "adapter": "adapters/block_lora/seed1-launch0/adapter.safetensors",
    "history": "adapters/block_lora/seed1-launch0/history.parquet",
    "rounds": ROUNDS,
    "positions": "decode/lookup/shared/positions.parquet",
    "timing rows": "timing/seed1-launch0/session1.parquet",
    "cost": "timing/seed1-launch0/session1.cost.parquet",
    "summary": "summary.parquet",
    "summary for people": "summary.tsv",
    "figure": "figures/speedup.svg",
    "report": "report.html",
    "manifest": f"{ROUNDS}.manifest.json",
    "recipe": f"{ROUNDS}.recipe.json",
    "SHA256SUMS": "SHA256SUMS",
    "manifest of SHA256SUMS": "SHA256SUMS.manifest.json",
    "recipe of SHA256SUMS": "SHA256SUMS.recipe.json",
}
OUTSIDE = {
    "prompts": ("config/prompts/tiny.jsonl", ("windows/", "decode/", "timing/")),
    "decision rules": ("config/decision.yaml", ("summary.",)),
}


@pytest.fixture(scope="module")
def copy(finished, tmp_path_factory) -> Path:
    """Return a copy of the finished run; no file of it is linked to the run's own."""
    folder = tmp_path_factory.mktemp("mutations") / "copy"
    shutil.copytree(finished.results, folder / "results" / "nano")
    shutil.copytree(finished.folder / "config", folder / "config")
    return folder


@pytest.fixture
def flip(copy):
    """Return a function that changes the byte in the middle of a file; all is put right again afterwards."""
    kept = {}

    def change(name: str) -> None:
        path = copy / name
        kept[path] = path.read_bytes()
        data = bytearray(kept[path])
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    yield change
    for path, data in kept.items():
        path.write_bytes(data)


def named(copy) -> dict[str, tuple[str, str]]:
    """Return state and reason of everything that is not ok, by its path under the results."""
    results = copy / "results" / "nano"
    found = verify(copy / "results", base=copy)
    return {
        Path(each.path).relative_to(results).as_posix(): (each.state, each.reason)
        for each in found.findings
        if each.state != "ok"
    }


def test_the_run_itself_is_ok(copy):
    assert named(copy) == {}


@pytest.mark.parametrize("kind", PAYLOADS)
def test_a_byte_of_a_result_is_named(copy, flip, kind):
    flip(f"results/nano/{PAYLOADS[kind]}")
    (name, (state, _)) = named(copy).popitem()
    assert state == "altered"
    # A payload and its own manifest accuse each other where no ledger judges: of SHA256SUMS itself.
    assert name == PAYLOADS[kind] or (kind == "manifest of SHA256SUMS" and name == "SHA256SUMS")


@pytest.mark.parametrize("kind", OUTSIDE)
def test_a_byte_of_a_file_outside_is_named_where_it_was_read(copy, flip, kind):
    name, readers = OUTSIDE[kind]
    flip(name)
    found = named(copy)
    assert found
    for role, (state, reason) in found.items():
        assert role.startswith(readers)
        assert (state, name in reason) == ("stale", True)
    assert {role.split("/")[0] for role in found} >= {reader.rstrip("/") for reader in readers if reader.endswith("/")}


@pytest.mark.parametrize("kind", ["rounds", "manifest", "recipe"])
def test_a_byte_is_named_without_a_ledger_too(copy, flip, kind):
    ledger = [copy / "results" / "nano" / f"SHA256SUMS{suffix}" for suffix in ("", ".manifest.json", ".recipe.json")]
    kept = {path: path.read_bytes() for path in ledger}
    for path in ledger:
        path.unlink()
    try:
        flip(f"results/nano/{PAYLOADS[kind]}")
        assert [name for name, (state, _) in named(copy).items() if state == "altered"] in ([PAYLOADS[kind]], [ROUNDS])
    finally:
        for path, data in kept.items():
            path.write_bytes(data)
