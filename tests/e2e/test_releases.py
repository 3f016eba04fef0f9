"""The releases' configurations: they dry-run here, and release B's runs on drafters that our exporters wrote."""

import mlx.core as mx
import pyarrow.parquet as pq
import pytest
import yaml

from draftledger.drafters.dflash_config import DFlashConfig, DSparkConfig
from draftledger.drafters.formats.shapes import expected
from draftledger.drafters.formats.write import write_deepspec, write_zlab
from draftledger.models.load import load_target
from draftledger.models.tiny import write_tiny
from draftledger.rng import key_of
from workspace import ROOT, Workspace, checkout

SHIPPED = ("release-b", "release-b-qwen3")
ARMS = ("ar", "mlx_lm_ar", "dspark_2", "dflash_full")
TARGET = {
    **{"seed": 1, "width": 32, "heads": 4, "layers": 4, "attention_every": 2, "vocabulary": 300},
    **{"length": 16, "batch": 2, "steps": 2, "learning_rate": 1.0e-3},
}
SHAPE = {
    **{"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8},
    **{"intermediate_size": 48, "vocab_size": 300, "rms_norm_eps": 1e-6, "rope_theta": 1e4},
    **{"max_position_embeddings": 4096, "target_layer_ids": (0, 2), "num_target_layers": 4, "mask_token_id": 299},
}
HEADS = {"markov_rank": 8, "enable_confidence_head": True, "confidence_head_with_markov": True}


def drawn(kind: str, settings: dict) -> dict[str, mx.array]:
    """Random weights of a drafter that borrows embeddings and head."""
    shapes = {k: v for k, v in expected(kind, settings).items() if k not in ("embed_tokens.weight", "lm_head.weight")}
    return {
        name: mx.ones(shape) if len(shape) == 1 else mx.random.normal(shape, key=mx.random.key(key_of(2, name, 0))) / 4
        for name, shape in shapes.items()
    }


def shrunk(name: str) -> dict:
    """A shipped configuration with other models, and fewer arms and prompts for the sake of time."""
    config = yaml.safe_load((ROOT / "config" / f"{name}.yaml").read_text())
    config["runtime"] = {"backend": "auto", "threads": 1, "dtype": "float32"}
    config["target"]["path"] = "models/target"
    for kind, drafter in config["drafters"].items():
        drafter["adapter"]["path"] = f"models/{kind}"
    config["decode"] |= {"prompts": "config/prompts/tiny.jsonl", "categories": None, "per_category": 1, "new_tokens": 8}
    config["arms"] = {name: config["arms"][name] for name in ARMS}
    config["timing"] |= {"arms": list(ARMS), "sessions": 1, "repeats": 1, "staged_prompts": 1}
    config["statistics"]["bootstrap"] = 200
    return config


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Workspace:
    """Release B's whole configuration, with tiny checkpoints in place of its own."""
    work = checkout(ROOT, tmp_path_factory.mktemp("release-b"), "release-b")
    models = work.folder / "models"
    write_tiny(["a line of text to count, and one more\n"] * 8, models / "target", spec=TARGET)
    assert load_target(models / "target", dtype="float32").vocab_size == SHAPE["vocab_size"]
    dflash, dspark = DFlashConfig(**SHAPE, block_size=6), DSparkConfig(**SHAPE, **HEADS, block_size=4)
    write_zlab(models / "dflash", dflash, drawn("dflash", SHAPE))
    write_deepspec(models / "dspark", dspark, drawn("dspark", {**SHAPE, **HEADS}))
    work.configfile.write_text(yaml.safe_dump(shrunk("release-b")))
    work.run("-j2")
    return work


@pytest.mark.parametrize("name", SHIPPED)
def test_release_b_dry_runs_without_its_models(name):
    jobs = Workspace(ROOT, name).planned()
    assert {"published dflash", "published dspark", "decode dspark_2 shared", "timing shared 1"} <= jobs
    assert not {job for job in jobs if job.split()[0] in ("corpus", "windows", "teacher", "adapter")}


def test_release_a_dry_runs_without_its_models():
    jobs = Workspace(ROOT, "release-a").planned()
    assert {"published released", "decode released shared", "adapter block_lora 20260903 0"} <= jobs


def test_release_b_differs_from_the_second_target_by_its_models_alone():
    def rest(name: str) -> dict:
        config = yaml.safe_load((ROOT / "config" / f"{name}.yaml").read_text())
        return {key: value for key, value in config.items() if key not in ("experiment", "target", "drafters")}

    assert rest(SHIPPED[0]) == rest(SHIPPED[1])
    assert {"dspark_2", "dspark_full", "dflash_2", "dflash_full"} <= rest(SHIPPED[0])["arms"].keys()


def test_both_drafters_are_measured_and_lossless(finished):
    rows = pq.read_table(finished.results / "summary.parquet").to_pylist()
    arms = {"dspark_2", "dflash_full"}
    speed = [row for row in rows if row["metric"] == "speedup_decode" and row["scope"] == "all"]
    assert arms <= {row["arm"] for row in speed}
    assert {row["population"] for row in speed} == {"prompts"}
    assert all(row["estimate"] == 1 for row in rows if row["metric"] == "exact_positions")
    assert all(row["estimate"] == 0 for row in rows if row["metric"] == "differs_from_ar")
    offered = {}
    for arm in arms:
        table = pq.read_table(finished.results / "decode" / arm / "shared" / "rounds.parquet")
        offered[arm] = max(table["offered"].to_pylist())
    assert offered == {"dspark_2": 2, "dflash_full": 5}


def test_nothing_is_trained_and_a_second_run_has_nothing_to_do(finished):
    made = {path.name for path in finished.results.iterdir() if path.is_dir()}
    assert made == {"model", "adapters", "decode", "timing", "figures"}
    assert finished.planned() == set()
