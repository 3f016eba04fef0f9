"""Loading a target, and writing the folder it loads from: bytes kept, answers' ends gathered, nothing half-written."""

import json
import shutil
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.utils import quantize_model

import tiny_gguf
from draftledger.errors import ConfigError, DraftledgerError, SourceError, UnsupportedError
from draftledger.models.folder import FILES, scan_safetensors, write_safetensors
from draftledger.models.load import Target, load_target, materialise

IDS = mx.array([[5, 90, 4, 260, 33, 7]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("load")
    materialise(tiny_gguf.write(root / "tiny.gguf"), root / "model")
    return root / "model"


def copy(folder: Path, out: Path, **config: object) -> Path:
    """A copy of the folder with settings of config.json replaced."""
    shutil.copytree(folder, out)
    text = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps({**text, **config}))
    return out


def shard(folder: Path) -> None:
    """Split a folder's weights into two shards with an index, as the hub publishes large models."""
    tensors = scan_safetensors(folder / "model.safetensors")
    names = [f"model-{part}-of-00002.safetensors" for part in ("00001", "00002")]
    home = {name: names[number % 2] for number, name in enumerate(reversed(sorted(tensors)))}
    for file in names:
        write_safetensors(folder / file, {name: tensors[name] for name in tensors if home[name] == file})
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": home}))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def logits(target: Target) -> np.ndarray:
    return np.array(target.model(IDS).astype(mx.float32))


def test_target_has_its_limits(folder: Path) -> None:
    target = load_target(folder, dtype="float32")
    assert target.vocab_size == target.tokenizer.size == len(tiny_gguf.vocabulary())
    assert (target.context_length, target.eos_ids) == (128, {2})
    assert not target.model.training


@pytest.mark.parametrize(("dtype", "expected"), [("float32", mx.float32), ("bfloat16", mx.bfloat16)])
def test_weights_are_cast(folder: Path, dtype: str, expected: mx.Dtype) -> None:
    target = load_target(folder, dtype=dtype)
    assert {value.dtype for _, value in tree_flatten(target.model.parameters())} == {expected}


def test_folder_has_exactly_its_files(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)


def test_shards_merge_into_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    source = copy(folder, tmp_path / "source")
    shard(source)
    materialise(source, tmp_path / "out")
    assert contents(tmp_path / "out")["model.safetensors"] == contents(folder)["model.safetensors"]
    same = np.array_equal(
        logits(load_target(tmp_path / "out", dtype="float32")), logits(load_target(folder, dtype="float32"))
    )
    assert same


def test_own_folder_is_a_fixed_point(folder: Path, tmp_path: Path) -> None:
    materialise(folder, tmp_path / "once")
    materialise(tmp_path / "once", tmp_path / "twice")
    assert contents(tmp_path / "once") == contents(tmp_path / "twice")


def test_quantised_weights_are_kept(folder: Path, tmp_path: Path) -> None:
    target = load_target(folder, dtype="float32")
    model, config = quantize_model(target.model, dict(target.config), group_size=32, bits=4)
    source = copy(folder, tmp_path / "source", quantization=config["quantization"])
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(source / "model.safetensors"), weights)
    materialise(source, tmp_path / "out")
    before, after = (scan_safetensors(path / "model.safetensors") for path in (source, tmp_path / "out"))
    assert {n: t.read() for n, t in before.items()} == {n: t.read() for n, t in after.items()}
    loaded = load_target(tmp_path / "out", dtype="float32")
    assert np.allclose(logits(loaded), np.array(model(IDS)), atol=1e-5)


def test_ends_and_template_are_gathered(folder: Path, tmp_path: Path) -> None:
    source = copy(folder, tmp_path / "source", eos_token_id=2)
    (source / "generation_config.json").write_text('{"eos_token_id": [0, 2]}')
    (source / "chat_template.jinja").write_text("{{ messages[0]['content'] }}!")
    materialise(source, tmp_path / "out")
    target = load_target(tmp_path / "out", dtype="float32")
    assert target.eos_ids == target.tokenizer.eos_ids == {0, 2}
    assert target.tokenizer.decode(target.tokenizer.chat("the")) == "the!"


def test_named_templates_give_the_default(folder: Path, tmp_path: Path) -> None:
    source = copy(folder, tmp_path / "source")
    named = [{"name": "tool", "template": "no"}, {"name": "default", "template": "yes"}]
    (source / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    materialise(source, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())["chat_template"] == "yes"


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"model_type": "nothing_of_the_kind"}, "model type nothing_of_the_kind"),
        ({"model_type": "clip", "vision_config": {}}, "vision model type clip"),
        ({"num_hidden_layers": 3}, "cannot load"),
        ({"num_hidden_layers": 1}, "cannot load"),
        ({"vocab_size": 100}, "ids, the model 100"),
        ({"max_position_embeddings": None}, "max_position_embeddings"),
        ({"model_file": "evil.py"}, "custom module"),
    ],
)
def test_what_is_not_handled_is_named(folder: Path, tmp_path: Path, config: dict, name: str) -> None:
    odd = copy(folder, tmp_path / "odd", **config)
    with pytest.raises(UnsupportedError, match=name) as raised:
        load_target(odd, dtype="float32")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", FILES)
def test_missing_file_is_named(folder: Path, tmp_path: Path, name: str) -> None:
    part = copy(folder, tmp_path / "part")
    (part / name).unlink()
    with pytest.raises(SourceError, match=name):
        load_target(part, dtype="float32")


def test_unknown_dtype_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="float16"):
        load_target(folder, dtype="float16")


@pytest.mark.parametrize("cut", [0, 4, 200, -1])
def test_after_a_cut_shard_the_folder_is_as_before(folder: Path, tmp_path: Path, cut: int) -> None:
    source, out = copy(folder, tmp_path / "source"), copy(folder, tmp_path / "out")
    weights = source / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:cut])
    before = contents(out)
    with pytest.raises(SourceError, match=r"model\.safetensors"):
        materialise(source, out)
    assert contents(out) == before
    assert sorted(path.name for path in out.iterdir()) == sorted(FILES)


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "model-00002-of-00002.safetensors"])
def test_incomplete_source_is_named(folder: Path, tmp_path: Path, name: str) -> None:
    source = copy(folder, tmp_path / "source")
    shard(source)
    (source / name).unlink()
    with pytest.raises(DraftledgerError, match=name):
        materialise(source, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_source_without_an_end_is_refused(folder: Path, tmp_path: Path) -> None:
    source = copy(folder, tmp_path / "source", eos_token_id=None)
    (source / "tokenizer_config.json").write_text("{}")
    with pytest.raises(UnsupportedError, match="eos_token_id"):
        materialise(source, tmp_path / "out")
