"""Drafters written anew come back bit for bit in every layout, and become artefacts of a run."""

import json
from dataclasses import asdict

import mlx.core as mx
import pytest

from checkpoints import BORROWED, FIXTURES, HIDDEN, backbone, changed, same, save
from draftledger.cli import main
from draftledger.drafters.formats.checkpoint import inspect
from draftledger.drafters.formats.publish import publish
from draftledger.drafters.formats.read import read
from draftledger.drafters.formats.write import write_adapter, write_deepspec, write_speculators, write_zlab
from draftledger.errors import SourceError, UnsupportedError
from draftledger.models.folder import scan_safetensors
from draftledger.models.sources import fetch_adapter, weights_sha256
from draftledger.provenance.digest import content_digest

DFLASH, DSPARK = FIXTURES["z-lab, first generation"], FIXTURES["DeepSpec"]


EXPORTS = [
    ("z-lab, first generation", write_zlab, "z-lab DFlash"),
    ("z-lab, nested", write_zlab, "z-lab DFlash"),
    ("z-lab DFlash 2", write_zlab, "z-lab DFlash 2"),
    ("DeepSpec", write_deepspec, "DeepSpec DSpark"),
    ("DeepSpec, recurrent Markov head", write_deepspec, "DeepSpec DSpark"),
    ("z-lab, nested", write_speculators, "speculators DFlash"),
    ("z-lab DFlash 2", write_speculators, "speculators DFlash 2"),
    ("DeepSpec, gated Markov head", write_speculators, "speculators DSpark"),
    ("speculators, reduced vocabulary", write_speculators, "speculators DSpark"),
    ("speculators, Muse", write_speculators, "speculators DSpark"),
    ("SpecForge", write_speculators, "speculators DSpark"),
]


def plain(config) -> dict:
    """What a config means: settings that are written down only in full count as their defaults."""
    settings = asdict(config)
    kinds = settings["layer_types"] or ("full_attention",) * settings["num_hidden_layers"]
    return {**settings, "layer_types": tuple(kinds)}


@pytest.mark.parametrize(("name", "write", "packaging"), EXPORTS)
def test_what_is_written_comes_back_bit_for_bit(tmp_path, name, write, packaging):
    config, tensors = read(FIXTURES[name].write(tmp_path / "source"))
    write(tmp_path / "out", config, tensors)
    assert inspect(tmp_path / "out").packaging.name == packaging
    again, back = read(tmp_path / "out")
    assert plain(again) == plain(config)
    assert same(back, tensors)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("name", ["z-lab, nested", "z-lab DFlash 2", "speculators, Muse", "DeepSpec"])
def test_one_file_holds_a_drafter_and_its_settings(tmp_path, name):
    config, tensors = read(FIXTURES[name].write(tmp_path / "source"))
    write_adapter(tmp_path / "adapter.safetensors", config, tensors)
    again, back = read(tmp_path / "adapter.safetensors")
    assert plain(again) == plain(config)
    assert same(back, tensors)


REFUSED_EXPORTS = [
    ("DeepSpec", write_zlab, "z-lab's layout is for DFlash, not dspark"),
    ("z-lab, nested", write_deepspec, "DeepSpec's layout is for DSpark, not dflash"),
    ("speculators, Muse", write_deepspec, "no place for sliding layers; write it as speculators"),
    ("speculators, reduced vocabulary", write_deepspec, "no place for a first row of 1"),
    ("SpecForge", write_deepspec, "no place for rope scaling"),
    ("LiquidAI", write_deepspec, "no layout has a place for rope_traditional"),
    ("DeepSpec, Gemma 4", write_deepspec, "no layout has a place for family"),
    ("NVIDIA", write_speculators, "no layout has a place for attention_sinks"),
]


@pytest.mark.parametrize(("name", "write", "reason"), REFUSED_EXPORTS)
def test_what_a_layout_cannot_say_is_refused_and_nothing_is_written(tmp_path, name, write, reason):
    config, tensors = read(FIXTURES[name].write(tmp_path / "source"))
    with pytest.raises(UnsupportedError, match=reason):
        write(tmp_path / "out", config, tensors)
    assert not (tmp_path / "out" / "config.json").exists()


def test_an_export_that_lacks_a_tensor_is_not_written(tmp_path):
    config, tensors = read(DFLASH.write(tmp_path / "source"))
    tensors.pop("norm.weight")
    with pytest.raises(UnsupportedError, match=r"norm\.weight is missing"):
        write_zlab(tmp_path / "out", config, tensors)
    assert list((tmp_path / "out").iterdir()) == []


def test_the_command_line_says_what_a_drafter_is_and_writes_it_anew(tmp_path, capsys):
    folder, out = DSPARK.write(tmp_path / "source"), tmp_path / "out"
    assert main(["recognise", str(folder)]) == 0
    told = capsys.readouterr().out
    assert told.startswith("DeepSpec DSpark: dspark, block 7, taps 0, 2\nsha256: ")
    assert main(["export", str(folder), str(out), "--layout", "speculators", "--target", "some/target"]) == 0
    config = json.loads((out / "config.json").read_text())
    assert config["speculators_config"]["verifier"]["name_or_path"] == "some/target"
    assert main(["export", str(folder), str(out), "--layout", "zlab"]) == 1
    assert "z-lab's layout is for DFlash" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["z-lab, nested", "speculators, reduced vocabulary", "Qwen3.5-native", "NVIDIA"])
def test_a_published_drafter_becomes_one_file_of_the_same_content(tmp_path, name):
    fixture, out = FIXTURES[name], tmp_path / "adapter.safetensors"
    folder = fixture.write(tmp_path / "source", shards=2)
    publish(fetch_adapter({"path": str(folder)}), out, spec={"kind": fixture.kind})
    config, tensors = read(folder)
    again, back = read(out)
    assert again == config
    assert same(back, tensors)
    stored = {key: tensor.read() for key, tensor in scan_safetensors(out).items()}
    shards = {key: t.read() for path in folder.glob("*.safetensors") for key, t in scan_safetensors(path).items()}
    assert stored == shards


def test_another_config_of_the_same_tensors_is_another_content(tmp_path):
    digests = set()
    for place, block in enumerate((8, 16)):
        folder = DFLASH.write(tmp_path / str(place))
        (folder / "config.json").write_text(json.dumps(changed(DFLASH, block_size=block)))
        publish(folder, tmp_path / f"{place}.safetensors", spec={"kind": "dflash"})
        digests.add(content_digest(tmp_path / f"{place}.safetensors"))
    assert len(digests) == 2


def test_a_drafter_of_another_kind_is_refused(tmp_path):
    with pytest.raises(UnsupportedError, match=r"is a dflash drafter \(z-lab DFlash\), the config says dspark"):
        publish(DFLASH.write(tmp_path / "source"), tmp_path / "out.safetensors", spec={"kind": "dspark"})
    assert not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize("shards", [1, 2])
def test_weights_are_pinned_by_digest(tmp_path, shards):
    folder = DFLASH.write(tmp_path / "drafter", shards=shards)
    pinned = {"path": str(folder), "sha256": weights_sha256(folder)}
    assert fetch_adapter(pinned) == folder
    tensors = {**DFLASH.tensors(), "norm.weight": mx.zeros((HIDDEN,), dtype=mx.bfloat16)}
    save(folder, tensors, shards=shards)
    with pytest.raises(SourceError, match="is not the pinned"):
        fetch_adapter(pinned)


def test_a_hub_repository_is_fetched_at_its_commit(tmp_path):
    folder, asked = DFLASH.write(tmp_path / "drafter"), {}

    def download(**arguments):
        asked.update(arguments)
        return str(folder)

    spec = {"repo": "z-lab/Qwen3-4B-DFlash-b16", "revision": "0" * 40, "sha256": weights_sha256(folder)}
    assert fetch_adapter(spec, download=download) == folder
    assert asked["revision"] == "0" * 40
    assert "*.safetensors" in asked["allow_patterns"]
    assert not any("py" in pattern or pattern == "*" for pattern in asked["allow_patterns"])


def test_what_is_borrowed_may_be_absent_but_nothing_else(tmp_path):
    tensors = {name: value for name, value in DSPARK.tensors().items() if name not in BORROWED}
    _, found = read(DSPARK.write(tmp_path, tensors=tensors))
    assert found.keys() == tensors.keys()
    assert backbone()["hidden_size"] == HIDDEN
