"""The plan: which artefacts there are, and that each stage depends on its own settings and code and on no others."""

import copy
from itertools import product
from pathlib import Path

import pytest
import yaml

from draftledger.plan import Plan, software
from draftledger.provenance.digest import canonical_json

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = [path for path in sorted(ROOT.glob("config/*.yaml")) if "experiment" in yaml.safe_load(path.read_text())]
KINDS = ("ar", "mlx_lm_ar", "lookup", "oracle", "block_lora")

RELEASED = ("kind", "rank", "scale", "modules", "noise_bound")
NANO = yaml.safe_load((ROOT / "config" / "nano.yaml").read_text())
NANO["drafters"]["other"] = copy.deepcopy(NANO["drafters"]["block_lora"])
NANO["drafters"]["released"] = {
    **{key: NANO["drafters"]["block_lora"][key] for key in RELEASED},
    "adapter": {"path": "released.safetensors", "sha256": "0" * 64},
}
NANO["arms"]["released"] = {"kind": "block_lora", "k": 2, "drafter": "released"}
NANO["timing"]["arms"].append("released")

ARMS = " ".join(f"decode:{arm}" for arm in NANO["arms"])
SHAPE = "adapter:block_lora decode:block_lora decode:untrained timing"
# What each setting decides, by the longest prefix that fits; "" are settings that only add or remove artefacts.
DECIDES = {
    "experiment": "report",
    "runtime": "environment",
    "runtime.dtype": f"environment {ARMS} timing summary",
    "target": "model",
    "corpus": "corpus",
    "windows": "windows",
    "teacher": "teacher",
    "drafters.block_lora": "adapter:block_lora",
    **{f"drafters.block_lora.{key}": SHAPE for key in ("kind", "rank", "scale", "modules", "noise_bound")},
    "drafters.other": "adapter:other",
    "drafters.released.adapter": "published:released",
    **{f"drafters.released.{key}": "published:released decode:released timing" for key in RELEASED},
    **{f"arms.{arm}": f"decode:{arm} timing summary" for arm in NANO["arms"]},
    "arms.untrained": "decode:untrained summary",
    "arms.ar_twin.twin_of": "summary",
    "arms.block_lora.control": "summary",
    "seeds": "",
    "launches": "",
    "decode": f"{ARMS} timing",
    "decode.adversary_prompts": "decode:ar",
    "decode.prompts": f"windows {ARMS} timing",
    "timing": "timing",
    "timing.sessions": "",
    "statistics": "summary",
}
# Values that must stay among those that exist.
INSTEAD = {"float32": "bfloat16", "block_lora": "other", "released": "other"}


def leaves(value, path=()):
    """Yield the path of every setting; a list is one setting."""
    if not isinstance(value, dict):
        yield path
        return
    for key, inner in value.items():
        yield from leaves(inner, (*path, key))


def changed(value):
    match value:
        case bool() | None:
            return not value
        case int() | float():
            return value + 1
        case str():
            return INSTEAD.get(value, value + "x")
    return [*value, "untrained" if isinstance(value[0], str) else max(value) + 1]


def with_change(config, path):
    config = copy.deepcopy(config)
    inner = config
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = changed(inner[path[-1]])
    return config


def specs(config) -> dict[str, bytes]:
    """Return the settings of every stage, by name; those of all its jobs together."""
    plan = Plan(config, ROOT)
    stages = ("environment", "corpus", "model", "windows", "summary", "figures", "report", "ledger")
    found = {stage: [plan.spec(stage)] for stage in stages}
    found["teacher"] = [
        plan.spec("teacher", split=s, shard=n) for s, n in product(("train", "validation"), ("0000", "0001"))
    ]
    found["published:released"] = [plan.spec("published", drafter="released")]
    for name in ("block_lora", "other"):
        found[f"adapter:{name}"] = [plan.spec("adapter", drafter=name, seed=s, launch="0") for s in "12"]
    for name in config["arms"]:
        found[f"decode:{name}"] = [plan.spec("decode", arm=name, draw=d) for d in ("shared", "seed1-launch0")]
    found["timing"] = [plan.spec("timing", draw="seed1-launch0", session=n) for n in "12"]
    return {stage: canonical_json(found[stage]) for stage in found}


BASE = specs(NANO)


@pytest.mark.parametrize("path", list(leaves(NANO)), ids=".".join)
def test_a_setting_changes_exactly_the_stages_that_depend_on_it(path):
    fitting = [prefix for prefix in DECIDES if ".".join(path) == prefix or ".".join(path).startswith(prefix + ".")]
    other = specs(with_change(NANO, path))
    assert {stage for stage in BASE if other[stage] != BASE[stage]} == set(DECIDES[max(fitting, key=len)].split())


def test_jobs_of_one_stage_have_settings_of_their_own():
    plan = Plan(NANO, ROOT)
    jobs = [
        *(plan.spec("adapter", drafter=d, seed=s, launch=n) for d, s, n in product(["block_lora"], "12", "01")),
        *(plan.spec("decode", arm=arm, draw=d) for arm, d in product(NANO["arms"], ("shared", *plan.draws))),
        *(plan.spec("timing", draw=d, session=n) for d, n in product(plan.draws, "12")),
        *(plan.spec("teacher", split=s, shard=n) for s, n in product(("train", "validation"), ("0000", "0001"))),
    ]
    texts = [canonical_json(job) for job in jobs]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_artefact_of_a_shipped_config_has_one_place(path):
    plan = Plan(yaml.safe_load(path.read_text()), ROOT)
    evidence = plan.evidence()
    assert len(set(evidence)) == len(evidence)
    assert all(name.startswith(plan.root + "/") for name in evidence)
    assert set(plan.adapters()) >= {a for draw in plan.draws for a in plan.timed_adapters(draw)}
    assert set(plan.all_rounds()) >= {r for draw in plan.draws for r in plan.timed_rounds(draw)}


def test_a_published_drafter_has_no_seed_and_its_arms_decode_once():
    plan = Plan(NANO, ROOT)
    weights = "results/nano/adapters/released/published/adapter.safetensors"
    assert plan.arm_draws("released") == ["shared"]
    assert plan.arm_adapter("released", "shared") == plan.arm_adapter("released", "seed1-launch0") == [weights]
    assert plan.adapters().count(weights) == 1
    assert not any("released" in path for path in plan.histories())


def test_nothing_that_only_training_reads_is_made_when_nothing_is_trained():
    config = copy.deepcopy(NANO) | {"target": {"kind": "local", "path": "x"}}
    for arm in ("block_lora", "untrained"):
        del config["arms"][arm]
    for name in ("block_lora", "other"):
        del config["drafters"][name]
    for name in ("corpus", "windows", "teacher", "seeds", "launches"):
        del config[name]
    config["timing"]["arms"] = ["ar", "released"]
    plan = Plan(config, ROOT)
    made = {path.removeprefix("results/nano/").split("/")[0] for path in plan.evidence()}
    assert made.isdisjoint({"corpus", "windows", "teacher"})
    assert plan.sessions() == ["results/nano/timing/shared/session1.parquet"]
    assert plan.timed_rounds("shared")[1] == "results/nano/decode/released/shared/rounds.parquet"
    assert plan.spec("timing", draw="shared", session="1")["seed"] is None


def test_a_seed_adds_its_own_branch_and_nothing_else():
    before, after = Plan(NANO, ROOT).evidence(), Plan(with_change(NANO, ("seeds",)), ROOT).evidence()
    added = set(after) - set(before)
    assert set(before) < set(after)
    assert {name.split("/")[2] for name in added} == {"adapters", "decode", "timing"}
    assert all("seed3-launch0" in name for name in added)


@pytest.mark.parametrize(("windows", "size", "count"), [(8, 8, 1), (9, 8, 2), (16, 8, 2), (1, 8, 1)])
def test_the_last_shard_may_be_short(windows, size, count):
    config = copy.deepcopy(NANO)
    config["windows"]["train"], config["teacher"]["shard_windows"] = windows, size
    assert len(Plan(config, ROOT).shards("train")) == count


def test_only_the_default_experiment_writes_to_the_results_folder_itself():
    assert Plan(NANO, ROOT).root == "results/nano"
    assert Plan(NANO | {"experiment": "default"}, ROOT).root == "results"


# --- code ------------------------------------------------------------------------------------------------------------


def test_every_kind_of_arm_is_decoded_with_code_of_its_own():
    plan = Plan(NANO, ROOT)
    codes = {kind: plan.code("decode", kinds=(kind,)) for kind in KINDS}
    assert len(set(codes.values())) == len(KINDS)
    assert plan.code("decode", kinds=("ar",)) == codes["ar"]


def test_every_stage_has_code_of_its_own():
    stages = sorted(path.stem for path in ROOT.glob("workflow_scripts/*.py"))
    codes = [Plan(NANO, ROOT).code(stage) for stage in stages]
    assert len(set(codes)) == len(stages) >= 12


def test_the_timed_kinds_are_those_of_the_timed_arms():
    assert Plan(NANO, ROOT).timed_kinds() == ("ar", "block_lora", "lookup", "mlx_lm_ar")


def test_the_software_that_decides_bits_is_named():
    found = software()
    assert found["mlx"]
    assert found["numpy"]
    assert found["python"].count(".") == 1
