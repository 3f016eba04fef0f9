"""Published drafters: every packaging is told and mapped, every fault is refused with its reason, exports come back."""

import json
from dataclasses import asdict
from importlib import import_module

import mlx.core as mx
import numpy as np
import pytest

from checkpoints import FIXTURES, HIDDEN, SLIDING, changed, nested, speculators
from draftledger.decoding.sampling import Sampling
from draftledger.drafters.base import DraftContext
from draftledger.drafters.block_adapter import adapter
from draftledger.drafters.formats.checkpoint import inspect
from draftledger.drafters.formats.nvfp4 import E2M1, e4m3
from draftledger.drafters.formats.pairing import check_pair
from draftledger.drafters.formats.read import read
from draftledger.errors import SourceError, UnsupportedError
from draftledger.models.state import TargetState
from draftledger.provenance.digest import CONFIG_KEY
from targets import hybrid

DFLASH, DSPARK = FIXTURES["z-lab, first generation"], FIXTURES["DeepSpec"]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("name", FIXTURES)
def test_a_packaging_is_told_and_mapped(tmp_path, name, shards):
    fixture = FIXTURES[name]
    folder = fixture.write(tmp_path / "drafter", shards=shards)
    found = inspect(folder)
    assert (found.packaging.name, found.packaging.kind) == (fixture.name, fixture.kind)
    config, tensors = read(folder)
    read_as = asdict(config)
    assert {key: read_as[key] for key in fixture.means} == fixture.means
    assert tuple(read_as["target_layer_ids"]) == (0, 2)
    assert read_as["mask_token_id"] == 3
    assert tensors.keys() == fixture.tensors().keys()
    tolerance = 0.01 if found.packaging.offset_norms else 0  # bfloat16 loses a bit of w − 1
    for key, value in fixture.tensors().items():
        assert tensors[key].dtype == value.dtype
        np.testing.assert_allclose(*(np.array(t.astype(mx.float32)) for t in (tensors[key], value)), atol=tolerance)


def test_noise_copied_from_a_target_means_nothing(tmp_path):
    config, _ = read(FIXTURES["DeepSpec, noise of its target"].write(tmp_path))
    assert config.rope_scaling is None
    assert not config.layer_types
    assert not config.is_causal


# --- every tensor counts ---------------------------------------------------------------------------------------------


def drafted(config, tensors) -> list[np.ndarray]:
    """What a drafter draws from in two rounds over random features: q, candidates and confidence of each slot."""
    kind = import_module(f"draftledger.drafters.{config.kind}")
    loaded = adapter(config, tensors, spec={}, model=hybrid(), where="test")
    drafter = kind.build(DraftContext({"kind": config.kind}, TargetState(hybrid()), (), 0, loaded, None, Sampling(1.0)))
    found = []
    for step, rows in enumerate((5, 3)):
        drafter.append_context([], mx.random.normal((rows, 2, HIDDEN), key=mx.random.key(step)))
        proposal = drafter.propose(mx.array([7 + step]), 0, step=step)
        found += [proposal.tokens, proposal.q, proposal.candidates, proposal.confidence]
    return [np.array(part) for part in found if part is not None]


def uneven(tensor: mx.array) -> mx.array:
    """A tensor scaled by other factors along it: a norm would undo one factor for all."""
    factors = 1 + 0.5 * mx.sin(mx.arange(1, tensor.size + 1)).reshape(tensor.shape)
    return (tensor.astype(mx.float32) * factors).astype(tensor.dtype)


@pytest.mark.parametrize("name", FIXTURES)
def test_scaling_any_one_tensor_changes_what_is_drafted(tmp_path, name):
    config, tensors = read(FIXTURES[name].write(tmp_path))
    before = drafted(config, tensors)
    assert all((one == two).all() for one, two in zip(before, drafted(config, tensors), strict=True))
    for place in tensors.keys() - {"d2t"}:
        after = drafted(config, {**tensors, place: uneven(tensors[place])})
        assert any((one != two).any() for one, two in zip(before, after, strict=True)), place
    if "d2t" in tensors:
        after = drafted(config, {**tensors, "d2t": 1 + tensors["d2t"]})
        assert (after[2] == before[2] + 1).all()


# --- refused with the reason -----------------------------------------------------------------------------------------


HYBRID = {**DFLASH.config, "markov_rank": 256}
CONFIGS = {
    "a target with its drafter": ({"architectures": ["DeepseekV4ForCausalLM"], "dspark_block_size": 5}, "extract it"),
    "log-SNR": ({**DSPARK.config, "log_snr_conditioning": True}, "log-SNR embedding is not supported"),
    "a hybrid": (HYBRID, "a DFlash head with DSpark's Markov head is neither"),
    "another algorithm": (speculators("eagle3"), "its algorithm is another; dflash, dflash2 and dspark are read"),
    "Domino": ({**DFLASH.config, "dflash_config": nested(projector_type="domino")}, "Domino correction head"),
    "a plain model": ({"architectures": ["Qwen3ForCausalLM"]}, "no known drafter packaging: config.json says"),
    "nothing": ({}, "no known drafter packaging: config.json says nothing"),
    "DFlash 2 without its selector": (
        changed(DFLASH, architectures=["DFlash2DraftModel"]),
        "config.json says no conv_group_size; this is no whole dflash2 drafter",
    ),
    "speculators without a backbone": (
        {k: v for k, v in speculators("dspark").items() if k != "transformer_layer_config"},
        "config.json lacks or garbles 'transformer_layer_config'",
    ),
    "DFlash that predicts from the anchor": (
        speculators("dflash", speculators_config={}, sample_from_anchor=True),
        "a DFlash drafter whose anchor row predicts",
    ),
    "no taps": (changed(DFLASH, target_layer_ids=None), "says no target_layer_ids"),
    "equal taps": (changed(DFLASH, target_layer_ids=[1, 1]), r"target_layer_ids \[1, 1\] name a layer twice"),
    "taps as text": (changed(DFLASH, target_layer_ids="12"), "config.json lacks or garbles"),
    "no mask": (changed(DFLASH, mask_token_id=None), "says no mask_token_id"),
    "a mask beyond": (changed(DFLASH, mask_token_id=96), "mask_token_id 96 has no embedding"),
    "no rope": (changed(DFLASH, rope_theta=None), "says no rope_theta"),
    "a garbled size": (changed(DFLASH, hidden_size="32"), "hidden_size is '32', not a size"),
    "a block of one": (changed(DFLASH, block_size=1), "block_size 1 leaves nothing to propose"),
    "a block of thousands": (changed(DFLASH, block_size=4096), "block_size 4096 is above 64"),
    "too few kinds": (changed(DFLASH, layer_types=["full_attention"]), "1 layer_types, not one a layer"),
    "a strange kind": (
        changed(DFLASH, layer_types=["mamba"] * 2),
        "layer_types may be full_attention or",
    ),
    "sliding anywhere": (changed(DFLASH, layer_types=SLIDING), "sliding_window 0 is shorter than a block"),
    "a strange head": (changed(DSPARK, markov_head_type="lstm"), "markov_head_type may be vanilla, gated, rnn"),
    "confidence in nothing": (changed(DSPARK, markov_rank=0), "confidence_head_with_markov needs a Markov head"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_is_refused_with_its_reason(tmp_path, name):
    config, reason = CONFIGS[name]
    DFLASH.write(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedError, match=reason) as caught:
        inspect(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}: ")
    assert "\n" not in str(caught.value)


TENSORS = {
    "missing": ("DeepSpec", {"fc.weight": None}, "tensor fc.weight is missing"),
    "missing selector": (
        "z-lab DFlash 2",
        {"candidate_selector.successor_codebook": None},
        "tensor candidate_selector.successor_codebook is missing",
    ),
    "missing map": ("speculators, reduced vocabulary", {"d2t": None}, "tensor d2t is missing"),
    "left over": ("z-lab, nested", {"layers.2.mlp.up_proj.weight": mx.zeros((48, HIDDEN))}, "layers.2.* is left over"),
    "left over head": ("z-lab, nested", {"lm_head.weight": mx.zeros((96, HIDDEN))}, "lm_head.weight is left over"),
    "mis-shaped": (
        "DeepSpec",
        {"layers.1.self_attn.k_proj.weight": mx.zeros((16, HIDDEN))},
        r"layers.1.self_attn.k_proj.weight is \[16, 32\] instead of \[32, 32\]; file and config.json are not a pair",
    ),
    "a tap more": ("z-lab, nested", {"fc.weight": mx.zeros((HIDDEN, 3 * HIDDEN))}, r"fc.weight is \[32, 96\] instead"),
    "quantised codebook": (
        "z-lab DFlash 2",
        {"candidate_selector.predecessor_codebook": mx.zeros((96, 4), dtype=mx.uint8)},
        "predecessor_codebook is U8; only NVFP4 linear layers are dequantised",
    ),
    "MLX's own quantisation": (
        "z-lab, nested",
        {"fc.weight": mx.zeros((HIDDEN, 8), dtype=mx.uint32), "fc.scales": mx.zeros((HIDDEN, 1))},
        "fc.weight is U32; only NVFP4",
    ),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_are_refused_with_their_reason(tmp_path, name):
    fixture, changes, reason = TENSORS[name]
    tensors = FIXTURES[fixture].edit({**FIXTURES[fixture].tensors(), **changes})
    FIXTURES[fixture].write(tmp_path, tensors={key: value for key, value in tensors.items() if value is not None})
    with pytest.raises(UnsupportedError, match=reason):
        inspect(tmp_path)


def test_only_safetensors_inside_the_folder_are_read(tmp_path):
    folder = DFLASH.write(tmp_path / "drafter", shards=2)
    shard = next(folder.glob("model-00002*"))
    away = shard.rename(tmp_path / "elsewhere.safetensors")
    with pytest.raises(SourceError, match="is missing"):
        inspect(folder)
    shard.symlink_to(away)
    with pytest.raises(SourceError, match="is a link out of its folder"):
        inspect(folder)
    index = folder / "model.safetensors.index.json"
    text = index.read_text()
    index.write_text(text.replace(shard.name, "../elsewhere.safetensors"))
    with pytest.raises(SourceError, match="which is no weight file in its folder"):
        inspect(folder)
    index.write_text(text.replace('"fc.weight"', '"gone.weight"'))
    shard.unlink()
    away.rename(shard)
    with pytest.raises(SourceError, match=r"tensor gone\.weight is in no shard"):
        inspect(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "drafter.gguf"])
def test_other_weights_are_refused(tmp_path, name):
    (tmp_path / "config.json").write_text(json.dumps(DFLASH.config))
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(UnsupportedError, match=f"{name}: .*safetensors"):
        inspect(tmp_path)
    with pytest.raises(UnsupportedError, match=r"a drafter is a \.safetensors file or a folder of them"):
        inspect(tmp_path / name)


@pytest.mark.parametrize("text", ["{", "[1]", "[" * 100_000])
def test_a_config_in_the_metadata_that_is_none_is_refused(tmp_path, text):
    path = tmp_path / "drafter.safetensors"
    mx.save_safetensors(str(path), DFLASH.tensors(), metadata={CONFIG_KEY: text})
    with pytest.raises(SourceError, match="the config in its metadata is no"):
        inspect(path)


def test_a_bare_file_needs_its_config(tmp_path):
    path = tmp_path / "drafter.safetensors"
    mx.save_safetensors(str(path), DFLASH.tensors())
    with pytest.raises(UnsupportedError, match="no config in its metadata; give the folder"):
        inspect(path)


def test_a_cut_file_and_a_doubled_tensor_are_refused(tmp_path):
    folder = DFLASH.write(tmp_path / "cut")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(SourceError, match="not a complete safetensors file"):
        inspect(folder)
    folder = DFLASH.write(tmp_path / "twice")
    (folder / "other.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(SourceError, match="stands in another shard too"):
        inspect(folder)


def test_a_tensor_under_two_names_is_refused(tmp_path):
    fixture, name = FIXTURES["NVIDIA"], "embed_tokens.weight"
    tensors = fixture.edit(fixture.tensors())
    fixture.write(tmp_path, tensors={**tensors, name: tensors[f"model.{name}"]})
    with pytest.raises(UnsupportedError, match="stands under two names"):
        inspect(tmp_path)


PAIRS = {
    "hidden": ({"hidden": 64}, "its hidden size is 32, the target's 64"),
    "layers": ({"layers": 2}, "it taps layer 2, the target's last is 1"),
    "vocabulary": ({"vocabulary": 95}, "it was made for 96 token ids, the target has 95"),
    "mask": ({"vocabulary": 3}, "its mask id is 3, the target embeds 3 ids"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_drafter_of_another_target_is_refused(tmp_path, name):
    config, _ = read(DFLASH.write(tmp_path))
    check_pair(config, hidden=HIDDEN, layers=3, vocabulary=96)
    changes, reason = PAIRS[name]
    with pytest.raises(UnsupportedError, match=f"{reason}; it is not this target's drafter"):
        check_pair(config, **{"hidden": HIDDEN, "layers": 3, "vocabulary": 96, **changes})


@pytest.mark.parametrize("offset", [60, -1, None])
def test_a_draft_vocabulary_must_map_into_the_targets(tmp_path, offset):
    fixture = FIXTURES["speculators, reduced vocabulary"]
    count = fixture.means["draft_vocab_size"]
    offsets = -mx.arange(count) if offset is None else mx.full((count,), offset)  # null sends all to one id
    fixture.write(tmp_path, tensors=fixture.edit({**fixture.tensors(), "d2t": offsets.astype(mx.int64)}))
    with pytest.raises(UnsupportedError, match="d2t does not map to distinct ids of the target's 96"):
        read(tmp_path)


# --- four-bit weights ------------------------------------------------------------------------------------------------


def test_e4m3_is_the_standards():
    codes = np.arange(256, dtype=np.uint8)
    ours, theirs = e4m3(codes), np.array(mx.from_fp8(mx.array(codes), dtype=mx.float32))
    finite = (codes & 127) != 127
    assert (ours[finite] == theirs[finite]).all()
    assert np.isnan(ours[~finite]).all()


def test_nvfp4_layers_are_dequantised_as_read(tmp_path):
    fixture, name = FIXTURES["NVIDIA"], "layers.0.mlp.up_proj.weight"
    codes = np.random.default_rng(0).integers(0, 16, (48, HIDDEN), dtype=np.uint8)
    scales = np.random.default_rng(1).integers(40, 72, (48, HIDDEN // 16), dtype=np.uint8)
    packed = {
        name: mx.array(codes[:, ::2] | codes[:, 1::2] << 4),
        f"{name}_scale": mx.array(scales),
        f"{name}_scale_2": mx.array(0.25),
        name.replace("weight", "input_scale"): mx.array(1.0),
    }
    fixture.write(tmp_path, tensors=fixture.edit({**fixture.tensors(), **packed}))
    _, tensors = read(tmp_path)
    wanted = E2M1[codes] * np.repeat(e4m3(scales), 16, axis=1) * 0.25
    assert tensors.keys() == fixture.tensors().keys()
    np.testing.assert_allclose(np.array(tensors[name].astype(mx.float32)), wanted, rtol=1 / 128)
