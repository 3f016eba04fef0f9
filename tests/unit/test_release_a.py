"""Release A as published: its config hashes, its parameter counts, and an adapter file of its names and shapes."""

import copy
import hashlib
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
import yaml

from draftledger.drafters import block_lora
from draftledger.drafters.formats.publish import publish
from draftledger.drafters.formats.release_a import config_hash, run_settings
from draftledger.errors import SourceError, UnsupportedError
from draftledger.models.counts import Counts, count_lora, count_target
from draftledger.models.sources import fetch_adapter
from draftledger.training.block_lora import build
from targets import VOCABULARY, dense, hybrid, prompt
from teachers import windows

ROOT = Path(__file__).resolve().parents[2]
CONFIG = yaml.safe_load((ROOT / "config" / "release-a.yaml").read_text())
TRAINED, RELEASED = CONFIG["drafters"]["block_lora"], CONFIG["drafters"]["released"]
# The published prefixes, by what varied.
HASHES = {
    "846fa021a8294cbe": {"block_size": 4},
    "bd2dbffae35cc6db": {"block_size": 8},
    "d690884d0993": {"block_size": 4, "noise_align_width": 8},
    "53ee2543d2d7": {"block_size": 6, "noise_align_width": 8},
    "2025641001d3": {"block_size": 8, "noise_align_width": 8},
    "45f6f0dc394e": {"block_size": 4, "noise_align_width": 8, "curriculum": (4, 6, 8)},
}
# The text decoder of Qwen3.5-4B.
QWEN = {
    "model_type": "qwen3_5",
    "vocab_size": 248320,
    "hidden_size": 2560,
    "intermediate_size": 9216,
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "max_position_embeddings": 262144,
}


@pytest.mark.parametrize("prefix", HASHES)
def test_the_config_gives_the_published_hash(prefix):
    assert config_hash(run_settings(CONFIG, "block_lora", **HASHES[prefix])).startswith(prefix)


def test_the_stages_are_the_two_runs_of_the_released_adapter():
    widths = [*(stage["k"] + 1 for stage in TRAINED["stages"]), TRAINED["k"] + 1]
    found = [config_hash(run_settings(CONFIG, "block_lora", block_size=width))[:16] for width in widths]
    assert found == ["846fa021a8294cbe", "bd2dbffae35cc6db"]
    assert (TRAINED["stages"][0]["until"], TRAINED["steps"]) == (12_800, 16_000)


@pytest.mark.parametrize(
    ("key", "value"),
    [("rank", 8), ("loss", "kl"), ("corruption", "full"), ("teacher", "shuffled"), ("batch", 2), ("scale", 8.0)],
)
def test_another_setting_gives_another_hash(key, value):
    config = copy.deepcopy(CONFIG)
    config["drafters"]["block_lora"][key] = value
    assert config_hash(run_settings(config, "block_lora", block_size=8))[:16] != "bd2dbffae35cc6db"


def test_the_parameters_are_counted_from_shapes_alone():
    before = mx.get_active_memory()
    assert count_target(QWEN) == Counts(tensors=426, parameters=4_205_751_296)
    counted = count_lora(QWEN, modules=TRAINED["modules"], rank=TRAINED["rank"])
    assert counted == Counts(tensors=256, parameters=21_233_664)
    assert mx.get_active_memory() - before < 1 << 20


def test_a_model_that_mlx_lm_lacks_is_refused_in_one_line():
    with pytest.raises(UnsupportedError, match="no text model of type nonesuch"):
        count_target({"model_type": "nonesuch"})


# --- its recipe ------------------------------------------------------------------------------------------------------


def objective(count: int = 4, length: int = 12, **changes):
    spec = {"k": 3, "anchors": "end", "batch": 2, "loss": "tv", "scale": 4.0, "rank": 2, "modules": ["up_proj"]}
    spec |= {"noise_bound": VOCABULARY, "teacher": "true_teacher", **changes}
    splits = {"train": windows(dense(), count=count, length=length), "validation": windows(dense(), count=2, key=9)}
    return build(dense(), windows=splits, spec=spec, seed=1), splits["train"]


def test_the_width_of_a_step_is_that_of_its_stage():
    goal, _ = objective(stages=[{"until": 1, "k": 1}, {"until": 3, "k": 2}])
    assert [goal.batch(step).noise.shape for step in range(5)] == [(2, 1), (2, 2), (2, 2), (2, 3), (2, 3)]
    assert {batch.noise.shape for batch in goal.validation()} == {(2, 3)}


def test_the_one_block_stands_at_the_end_of_its_window():
    goal, train = objective(count=2)
    batch = goal.batch(0)
    rows = train.teacher.ids[:, 8:11]  # anchor 7 of 12 tokens, as in release A: the last row is a target alone
    found = np.array(batch.rows.ids).reshape(2, 3, -1)
    assert sorted(map(repr, found.tolist())) == sorted(map(repr, rows.tolist()))


def test_uniform_corruption_leaves_clean_tokens_in_training_alone():
    full, train = objective(count=64, batch=64)
    mixed, _ = objective(count=64, batch=64, corruption="uniform")
    clean = sorted(map(tuple, train.tokens[:, 8:11].tolist()))
    noise, found = np.array(full.batch(0).noise), np.array(mixed.batch(0).noise)
    kept = (found != noise).mean(axis=1)
    assert 0.35 < kept.mean() < 0.65
    assert 0.1 < (kept == 1).mean() < 0.5  # every block has a chance of its own
    whole = {tuple(row) for row in found[kept == 1].tolist()}
    assert whole
    assert whole <= set(clean)
    for one, two in zip(full.validation(), mixed.validation(), strict=True):
        assert (np.array(one.noise) == np.array(two.noise)).all()


# --- the published adapter -------------------------------------------------------------------------------------------


def released(folder: Path, model=None, **changes) -> tuple[Path, dict]:
    """Write an adapter file of release A's names at a small shape; return it with the drafter's setting."""
    model = model or hybrid()
    weights = block_lora.initial_weights(model, modules=RELEASED["modules"], rank=4, key=mx.random.key(1))
    drawn = {
        name: 0.3 * mx.random.normal(value.shape, key=mx.random.key(i))
        for i, (name, value) in enumerate(weights.items())
    }
    path = folder / "released.safetensors"
    mx.save_safetensors(str(path), drawn)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return path, {**RELEASED, "rank": 4, "adapter": {"path": str(path), "sha256": digest}, **changes}


def published(tmp_path: Path, spec: dict) -> Path:
    out = tmp_path / "adapter.safetensors"
    publish(fetch_adapter(spec["adapter"]), out, spec=spec)
    return out


def test_the_published_file_has_release_as_names_and_loads_unchanged(tmp_path):
    path, spec = released(tmp_path)
    names = set(mx.load(str(path)))
    assert "language_model.model.layers.3.self_attn.q_proj.lora_a" in names
    assert "language_model.model.layers.0.mlp.up_proj.lora_b" in names
    adapter = block_lora.load(spec, published(tmp_path, spec), model=hybrid())
    source = mx.load(str(path))
    direct = block_lora.gated(hybrid(), source, scale=spec["scale"], first=1)
    ids = prompt()[None]
    assert (np.array(adapter.module(ids)) == np.array(direct(ids))).all()
    assert np.abs(np.array(adapter.module(ids)) - np.array(hybrid()(ids))).max() > 1e-3


def test_it_is_refused_on_another_target(tmp_path):
    _, spec = released(tmp_path)
    with pytest.raises(UnsupportedError, match="the target has no module language_model"):
        block_lora.load(spec, published(tmp_path, spec), model=dense())


def test_it_is_refused_where_the_target_has_layers_that_it_lacks(tmp_path):
    path, spec = released(tmp_path)
    weights = {name: value for name, value in mx.load(str(path)).items() if "layers.2." not in name}
    mx.save_safetensors(str(path), weights)
    spec["adapter"].pop("sha256")
    with pytest.raises(UnsupportedError, match=r"has no weights for language_model.*; it was made for another target"):
        block_lora.load(spec, published(tmp_path, spec), model=hybrid())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank": 8}, "is .*, not of rank 8; correct `rank`"),
        ({"modules": ["q_proj"]}, "the config says .'q_proj'.; correct `modules`"),
    ],
)
def test_settings_of_another_adapter_are_refused(tmp_path, changes, message):
    _, spec = released(tmp_path, **changes)
    with pytest.raises(UnsupportedError, match=message):
        published(tmp_path, spec)
    assert not (tmp_path / "adapter.safetensors").exists()


def test_other_bytes_are_refused(tmp_path):
    path, spec = released(tmp_path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(SourceError, match="is not the pinned"):
        published(tmp_path, spec)


def test_half_an_adapter_is_refused(tmp_path):
    path, spec = released(tmp_path)
    weights = mx.load(str(path))
    weights.pop("language_model.model.layers.0.mlp.up_proj.lora_b")
    mx.save_safetensors(str(tmp_path / "half.safetensors"), weights)
    with pytest.raises(UnsupportedError, match="up_proj has no lora_b"):
        published(tmp_path, {**spec, "adapter": {"path": str(tmp_path / "half.safetensors")}})
