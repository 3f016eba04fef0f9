"""A fault in a configuration is one line that says what, where and what to do; the shipped ones have none."""

import copy
import re
from pathlib import Path

import pytest
import yaml

from draftledger.config import check_config
from draftledger.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "config" / "config.schema.yaml"
CONFIGS = [path for path in sorted(ROOT.glob("config/*.yaml")) if re.search(r"^experiment:", path.read_text(), re.M)]
NANO = yaml.safe_load((ROOT / "config" / "nano.yaml").read_text())
DRAFTER = NANO["drafters"]["block_lora"]
SHAPE = {"layers": 1, "heads": 2, "inner": 8, "block": 4, "taps": 2, "attention": "full", "mask_id": 3}
ABSENT = object()


def changed(where: str, value, config=NANO):
    config = copy.deepcopy(config)
    *folders, last = where.split(".")
    inner = config
    for name in folders:
        inner = inner[name]
    if value is ABSENT:
        del inner[last]
    else:
        inner[last] = value
    return config


def told(config) -> str:
    with pytest.raises(ConfigError) as caught:
        check_config(config, SCHEMA)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


FAULTS = {
    "misspelt key": ("decode.new_token", 6, "config, decode: unknown key new_token; did you mean new_tokens?"),
    "misspelt key of a drafter": (
        "drafters.block_lora.rnak",
        2,
        "config, drafters.block_lora: unknown key rnak; did you mean rank?",
    ),
    "misspelt key of an arm": ("arms.lookup.ngrams", 3, "config, arms.lookup: unknown key ngrams; did you mean ngram?"),
    "misspelt block": ("timings", {}, "config, the top level: unknown key timings; did you mean timing?"),
    "key like no other": ("timing.zzz", 1, "config, timing: unknown key zzz; use one of arms, sessions, repeats"),
    "text for a number": (
        "drafters.block_lora.learning_rate",
        yaml.safe_load("1e-3"),
        "config, drafters.block_lora.learning_rate: '1e-3' is text, not a number; write 1.0e-3, not 1e-3",
    ),
    "text for a whole number": ("decode.new_tokens", "six", "config, decode.new_tokens: 'six' is text, not a number"),
    "negative width": (
        "target.width",
        -1,
        "config, target.width: -1 is less than the minimum of 1; see config/README.md",
    ),
    "half a step": (
        "drafters.block_lora.steps",
        1.5,
        "config, drafters.block_lora.steps: 1.5 is not of type 'integer'",
    ),
    "yes for a number": ("launches", True, "config, launches: True is not of type 'integer'"),
    "unknown kind of arm": (
        "arms.lookup.kind",
        "lokup",
        "config, arms.lookup: kind 'lokup' is unknown; use one of ar, mlx_lm_ar, lookup, oracle, block_lora, dflash",
    ),
    "unknown kind of target": (
        "target.kind",
        "onnx",
        "config, target: kind 'onnx' is unknown; use one of gguf, hub, local, tiny",
    ),
    "arm without a kind": ("arms.lookup.kind", ABSENT, "config, arms.lookup: kind missing; see config/README.md"),
    "unknown loss": ("drafters.block_lora.loss", "l2", "config, drafters.block_lora.loss: 'l2' is not one of ['tv'"),
    "unknown drafter": (
        "arms.block_lora.drafter",
        "other",
        "config, arms.block_lora.drafter: 'other' is not there; use one of block_lora",
    ),
    "control that is no arm": (
        "arms.block_lora.control",
        "other",
        "config, arms.block_lora.control: 'other' is not there; use one of ar, ar_twin",
    ),
    "twin of no arm": ("arms.ar_twin.twin_of", "other", "config, arms.ar_twin.twin_of: 'other' is not there; use one"),
    "shape that is not trained": (
        "drafters.block_lora",
        {"kind": "dspark", "shape": SHAPE},
        "config, arms.block_lora: kind 'block_lora', but its drafter 'block_lora' is of kind dspark",
    ),
    "another kind's setting": (
        "drafters.block_lora",
        {"kind": "dflash", "shape": {**SHAPE, "markov_rank": 4}},
        "config, drafters.block_lora.shape: unknown key markov_rank; use one of layers, heads, kv_heads, head_dim",
    ),
    "missing baseline": ("arms.ar", ABSENT, "config, arms: ar missing; see config/README.md"),
    "baseline of another kind": (
        "arms.ar",
        {"kind": "oracle", "k": 1},
        "config, arms.ar: kind 'oracle'; the baseline arm `ar` must be of kind ar",
    ),
    "timed arm that is none": (
        "timing.arms",
        ["ar", "x"],
        "config, timing.arms: 'x' is no arm; use one of ar, ar_twin",
    ),
    "baseline not timed": ("timing.arms", ["lookup"], "config, timing.arms: the baseline `ar` is not timed; add it"),
    "anchors that do not fit": (
        "drafters.block_lora.anchors",
        15,
        "config, drafters.block_lora.anchors: 15 do not fit a window; use at most 14",
    ),
    "more windows a step than there are": (
        "drafters.block_lora.batch",
        5,
        "config, drafters.block_lora.batch: more than the 4 validation windows; lower it",
    ),
    "arm of another kind than its drafter": (
        "arms.block_lora",
        {"kind": "dflash", "k": 0, "drafter": "block_lora"},
        "config, arms.block_lora: kind 'dflash', but its drafter 'block_lora' is of kind block_lora",
    ),
    "published drafter of an unknown kind": (
        "drafters.block_lora",
        {"kind": "eagle", "adapter": {"path": "x"}},
        "config, drafters.block_lora: kind 'eagle' is unknown; use one of block_lora, dflash, dflash2, dspark",
    ),
    "published drafter with a training setting": (
        "drafters.block_lora",
        {"kind": "dflash", "steps": 3, "adapter": {"path": "x"}},
        "config, drafters.block_lora: unknown key steps; use one of kind, adapter, bits, group_size",
    ),
    "published drafter on a branch": (
        "drafters.block_lora",
        {"kind": "dflash", "adapter": {"repo": "a/b", "revision": "main"}},
        "config, drafters.block_lora.adapter.revision: 'main' does not match",
    ),
    "training without a teacher": (
        "teacher",
        ABSENT,
        "config, the top level: teacher missing, and drafters.block_lora is trained; see config/README.md",
    ),
    "missing block": ("statistics", ABSENT, "config, the top level: statistics missing; see config/README.md"),
    "missing key": ("decode.noise", ABSENT, "config, decode: noise missing; see config/README.md"),
    "no block": ("decode", None, "config, decode: None is not of type 'object'; see config/README.md"),
    "name that is no file name": ("experiment", "../x", "config, experiment: '../x' does not match"),
    "name of an arm that is no file name": ("arms.a/b", {"kind": "ar"}, "config, arms: 'a/b' does not match"),
    "the same seed twice": ("seeds", [1, 1], "config, seeds: [1, 1] has non-unique elements; see config/README.md"),
    "no seed": ("seeds", [], "config, seeds: [] should be non-empty; see config/README.md"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_in_one_line(name):
    where, value, message = FAULTS[name]
    assert told(changed(where, value)).startswith(message)


def test_a_config_that_is_no_mapping_is_one_line():
    assert "is not of type 'object'" in told([])
    assert "is not of type 'object'" in told(None)


def test_a_hub_model_needs_its_revision():
    assert told(changed("target", {"kind": "hub", "repo": "a/b"})) == (
        "config, target: revision missing; see config/README.md"
    )


def test_what_only_training_reads_may_be_left_out_when_nothing_is_trained():
    config = changed("drafters", {"published": {"kind": "dflash", "adapter": {"path": "x"}}})
    config["arms"] = {"ar": {"kind": "ar"}, "dflash": {"kind": "dflash", "k": 0, "drafter": "published"}}
    config["timing"]["arms"] = ["ar", "dflash"]
    config["target"] = {"kind": "local", "path": "x"}
    for name in ("corpus", "windows", "teacher", "seeds", "launches"):
        del config[name]
    check_config(config, SCHEMA)
    config["target"] = NANO["target"]
    assert told(config) == "config, the top level: corpus missing, and target is trained; see config/README.md"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_shipped_config_is_valid(path):
    check_config(yaml.safe_load(path.read_text()), SCHEMA)


def test_there_are_shipped_configs():
    assert {"config", "tiny", "nano"} <= {path.stem for path in CONFIGS}


# --- every setting is shown or explained -----------------------------------------------------------------------------


def settings(schema, path=""):
    """Yield every key that the schema knows, with its own schema."""
    for key, inner in schema.get("properties", {}).items():
        yield f"{path}{key}", inner
        yield from settings(inner, f"{path}{key}.")
    for branch in schema.get("oneOf", []):
        yield from settings(branch, f"{path}{branch.get('title', '')}:")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from settings(schema["additionalProperties"], f"{path}*.")


def keys(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


def test_every_setting_stands_in_a_shipped_config_or_is_described():
    schema = yaml.safe_load(SCHEMA.read_text())
    shown = {key for path in CONFIGS for key in keys(yaml.safe_load(path.read_text()))}
    readme = ROOT / "config" / "README.md"
    shown |= set(re.findall(r"`([a-z_]+)`", readme.read_text())) if readme.is_file() else set()
    described = {name for name, inner in settings(schema) if "description" in inner}
    missing = [
        name for name, _ in settings(schema) if re.split(r"[.:]", name)[-1] not in shown and name not in described
    ]
    assert missing == []


def test_exact_answers_are_greedy_float32_ones():
    exact = changed("decode.exact", True)
    check_config(exact, SCHEMA)
    check_config(changed("decode.sampling", {"temperature": 0.7, "top_p": 0.9}), SCHEMA)
    assert told(changed("decode.sampling", {"temperature": 1}, exact)).startswith("config, decode.exact: only greedy")
    assert told(changed("runtime.dtype", "bfloat16", exact)).startswith("config, decode.exact: needs runtime.dtype")
    assert told(changed("decode.sampling", {"temperature": 0})).startswith("config, decode.sampling.temperature: 0")
    assert told(changed("decode.sampling", {})).startswith("config, decode.sampling: temperature missing")


def test_a_shaped_drafter_needs_no_corpus_and_only_untrained_arms_decode_with_it():
    shaped = changed("drafters", {"spark": {"kind": "dspark", "shape": {**SHAPE, "markov_rank": 4}}})
    arm = {"kind": "dspark", "k": 0, "drafter": "spark"}
    shaped["arms"] = {"ar": NANO["arms"]["ar"], "spark": {**arm, "untrained": True}}
    shaped["timing"]["arms"] = ["ar"]
    for name in ("windows", "teacher", "seeds", "launches"):
        del shaped[name]
    check_config(shaped, SCHEMA)
    message = "config, arms.spark: its drafter has no steps to train it by; add them, or untrained: true"
    assert told(changed("arms.spark", arm, shaped)) == message
