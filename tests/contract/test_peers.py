"""Other projects on the same weights: equal logits, drafts, answers and numbers of target forwards.

z-lab's `dflash` wrote the format; `mlx-dspark` is release B's successor. Both are fetched by pip into a scratch folder
and run in a process of their own; without them these tests are skipped and say why.
"""

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from block_drafters import HIDDEN, VOCABULARY, deep, randomise, settings
from checkpoints import FIXTURES, Fixture
from draftledger.arrays import leaves
from draftledger.decoding.loop import Limits, decode
from draftledger.drafters import dflash, dflash2, dspark
from draftledger.drafters.base import Adapter, DraftContext
from draftledger.drafters.block_adapter import assembled
from draftledger.drafters.dflash_model import DFlashDraftModel
from draftledger.drafters.formats.read import read
from draftledger.drafters.formats.write import write_deepspec, write_speculators, write_zlab
from draftledger.models.state import TargetState
from numpy_drafters import NumpyDrafter
from targets import greedy, prompt

HERE = Path(__file__).resolve().parent
PINNED = {"zlab": "dflash==0.1.0", "mlx_dspark": "mlx-dspark==0.20.3"}
KINDS = {"dflash": dflash, "dflash2": dflash2, "dspark": dspark}
COUNT, CLOSE = 20, 1e-5
# mlx-dspark takes the one function that it needs of mlx-vlm from here; mlx-lm has the same.
STUB = "from mlx_lm.models.rope_utils import initialize_rope\n"
TAPS = {"target_layer_ids": (0, 2), "num_target_layers": 4}
SCALED = {"final_logit_softcapping": 4.0, "output_multiplier": 0.6}
WIDE = {"sliding_window": 64}
BOTH = ("zlab", "mlx_dspark")
CASES = {
    "full": ("dflash", "full", {}, BOTH),
    "hybrid": ("dflash", "hybrid", {}, BOTH),
    "hybrid, wide": ("dflash", "hybrid", WIDE, BOTH),
    "sliding": ("dflash", "sliding", {}, ("zlab",)),
    "sliding, wide": ("dflash", "sliding", WIDE, BOTH),
    "causal sliding": ("dflash", "causal_sliding", {}, BOTH),
    "causal sliding, wide": ("dflash", "causal_sliding", WIDE, BOTH),
    "scaled": ("dflash", "full", SCALED, ("zlab",)),
    "selector": ("dflash2", "sliding", {}, ("zlab",)),
    "selector, wide": ("dflash2", "sliding", WIDE, ("zlab",)),
    "selector, causal, wide": ("dflash2", "causal_sliding", WIDE, BOTH),
    "selector, scaled, wide": ("dflash2", "hybrid", SCALED | WIDE, ("zlab",)),
    "deepspec": ("dspark", "full", {}, ("mlx_dspark",)),
    "speculators": ("dspark", "causal_sliding", {"first_row": 1, "draft_vocab_size": 90}, ("mlx_dspark",)),
}
ROUNDS = (3, 4, 9)
# A sliding layer whose window is full, and then a round that brings one row.
RING = {"ring": ("dflash", "causal_sliding", {}, BOTH)}
# What mlx-dspark does not read: other Markov heads than the vanilla one, NVIDIA's before its own conversion, and a
# speculators config whose rope base is not under `rope_parameters`, which it takes for a million.
LACKING = ("DeepSpec, gated Markov head", "DeepSpec, recurrent Markov head", "NVIDIA")
PACKAGINGS = [name for name, found in FIXTURES.items() if found.kind == "dspark" and name not in LACKING]


def fetched(folder: Path) -> str | None:
    """Fetch and unpack the peers; return why not, or null."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), *PINNED.values()]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return "pip download took longer than 120 s"
    if done.returncode:
        return f"pip download failed: {(done.stderr.strip().splitlines() or ['no reason told'])[-1]}"
    for wheel in folder.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(folder)
    (folder / "mlx_vlm" / "models").mkdir(parents=True)
    for package in ("mlx_vlm", "mlx_vlm/models"):
        (folder / package / "__init__.py").touch()
    (folder / "mlx_vlm" / "models" / "rope_utils.py").write_text(STUB)
    return None


@pytest.fixture(scope="session")
def peers(tmp_path_factory) -> Path:
    """Every case's folder, with what each peer said of it."""
    code, cases = tmp_path_factory.mktemp("peers"), tmp_path_factory.mktemp("cases")
    if reason := fetched(code):
        pytest.skip(f"other projects are not to be had: {reason}")
    for name, (kind, attention, changes, told) in (CASES | RING).items():
        write_case(cases / name, kind, attention, changes, told)
    for name in PACKAGINGS:
        understood(FIXTURES[name]).write(cases / name)
        write_inputs(cases / name, "dspark", ("mlx_dspark",), count=6)
    places = [code, HERE.parent, HERE.parent.parent / "workflow_scripts"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places)), "HOME": str(code)}
    for peer in PINNED:
        command = [sys.executable, str(HERE / "peers.py"), peer, str(cases)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
    return cases


def write_case(folder: Path, kind: str, attention: str, changes: dict, told: tuple[str, ...]) -> None:
    """Write a drafter that is sometimes right about the answer, in a layout that its peers read."""
    rank = {
        "dflash2": {"selector_rank": VOCABULARY, "selector_top_k": VOCABULARY // 2},
        "dspark": {"markov_rank": VOCABULARY},
    }.get(kind, {})
    config = settings(kind, attention, **TAPS, **rank, **changes)
    model = DFlashDraftModel(config, own=("lm_head.weight",) if changes.get("draft_vocab_size") else ())
    randomise(model, key=1)
    plant(model, kind)
    write = {"dflash": write_zlab, "dflash2": write_zlab, "dspark": write_deepspec}[kind]
    write = write_speculators if changes.get("first_row") else write
    write(folder, config, leaves(model.parameters()))
    write_inputs(folder, kind, told, rounds=(12, 1, 3) if folder.name in RING else ROUNDS)


def understood(fixture: Fixture) -> Fixture:
    """Say what mlx-dspark takes for granted: where a nested rope base stands, and that confidence hears the token."""
    config, means = dict(fixture.config), dict(fixture.means)
    if inner := config.get("transformer_layer_config"):
        config["transformer_layer_config"] = {**inner, "rope_parameters": {"rope_theta": inner["rope_theta"]}}
    if means.get("confidence_head_with_markov") is False:
        config["confidence_head_with_markov"] = means["confidence_head_with_markov"] = True
    return replace(fixture, config=config, means=means)


def plant(model: DFlashDraftModel, kind: str) -> None:
    """Teach it something of the target's answer: its commonest token, and which token follows which."""
    answer = greedy(deep(), prompt(12, key=1), COUNT)
    common = max(answer, key=answer.count)
    rest, head = deep().model.embed_tokens.weight[model.config.mask_token_id], deep().lm_head.weight[common]
    model.norm.weight = head * mx.sign(rest)
    quiet = {n: a * 0.05 for n, a in leaves(model.parameters()).items() if "o_proj" in n or "down_proj" in n}
    model.load_weights(list(quiet.items()), strict=False)
    follows = mx.zeros((VOCABULARY, VOCABULARY))
    for token, following in pairwise(answer):
        follows[following, token] = 40.0
    if kind == "dspark":
        model.markov_head.markov_w1.weight = mx.eye(VOCABULARY)
        model.markov_head.markov_w2.weight = follows[: model.markov_head.markov_w2.weight.shape[0]]
    if kind == "dflash2":
        model.candidate_selector.predecessor_codebook = mx.eye(VOCABULARY)
        model.candidate_selector.hidden_projection.weight = mx.broadcast_to(head, (VOCABULARY, HIDDEN))
        model.candidate_selector.successor_codebook = follows


def write_inputs(folder: Path, kind: str, told: tuple[str, ...], *, rounds=ROUNDS, count: int = COUNT) -> None:
    """Write the rounds that every project is given, taps [n, T·H] and a block, and how long it is to answer."""
    config, _ = read(folder)
    arrays = {}
    for i, rows in enumerate(rounds):
        arrays[f"heard{i}"] = mx.random.normal((rows, 2 * HIDDEN), key=mx.random.key(i))
        arrays[f"block{i}"] = mx.array([7 * i + 5] + [config.mask_token_id] * (config.block_size - 1), dtype=mx.int32)
    mx.savez(str(folder / "inputs.npz"), **arrays)
    (folder / "case.json").write_text(json.dumps({"kind": kind, "peers": told, "count": count}))


@cache
def ours(folder: Path) -> dict[str, np.ndarray]:
    """What our drafter says of the same rounds, and its answer."""
    config, tensors = read(folder)
    model = assembled(config, tensors, target=deep())
    adapter, inputs, found = Adapter(model, {}, config.target_layer_ids), mx.load(str(folder / "inputs.npz")), {}
    state = TargetState(deep(), taps=adapter.taps)
    drafter = KINDS[config.kind].build(DraftContext({"kind": config.kind}, state, (), 1, adapter))
    for i in range(len(inputs) // 2):
        heard, block = inputs[f"heard{i}"], inputs[f"block{i}"]
        hidden = model.hidden(block[None], heard[None], drafter.cache, start=config.first_predicting)[0]
        logits = model.logits(hidden)
        proposal = drafter.choose(hidden, logits, block[:1], None)
        found |= {f"logits{i}": np.array(logits), f"tokens{i}": np.array(proposal.tokens)}
        found |= {} if proposal.confidence is None else {f"confidence{i}": np.array(proposal.confidence)}
    drafter = KINDS[config.kind].build(DraftContext({"kind": config.kind}, state, (), 1, adapter))
    limits = Limits(json.loads((folder / "case.json").read_text())["count"], frozenset())
    rounds = list(decode(state, drafter, prompt(12, key=1), k=drafter.block, limits=limits))
    answer = [token for result in rounds for token in result.committed]
    return {**found, "answer": np.array(answer), "forwards": np.array(len(rounds))}


def apart(found, told) -> dict[str, float]:
    """The largest difference in every array that a peer told, in units of its largest value where that is above 1."""
    return {
        name: float(np.abs(found[name].astype(float) - told[name]).max() / max(1.0, np.abs(told[name]).max()))
        for name in told
    }


PAIRS = [
    (peer, name) for name, case in CASES.items() for peer in case[3] if (peer, name) != ("mlx_dspark", "sliding, wide")
]


@pytest.mark.parametrize(("peer", "name"), PAIRS)
def test_a_peer_says_the_same_of_the_same_weights(peers, peer, name):
    found, told = ours(peers / name), dict(np.load(peers / name / f"{peer}.npz"))
    if (
        peer == "zlab"
        and not name.endswith("wide")
        and "sliding_attention" in (read(peers / name)[0].layer_types or ())
    ):
        told.pop("forwards")  # see the ring below
    differences = apart(found, told)
    assert max(differences.values()) <= CLOSE, differences
    assert found["answer"].tolist() == greedy(deep(), prompt(12, key=1), COUNT)
    assert found["forwards"] < COUNT, "nothing was ever accepted, so equal answers would say little"


def test_mlx_dspark_does_not_honour_is_causal_and_drafts_otherwise(peers):
    found, told = ours(peers / "sliding, wide"), dict(np.load(peers / "sliding, wide" / "mlx_dspark.npz"))
    assert apart(found, told)["logits0"] > 1e-2
    assert told["answer"].tolist() == found["answer"].tolist()


@pytest.mark.parametrize("peer", BOTH)
def test_one_row_into_a_full_window_is_where_both_peers_mask_the_wrong_rows(peers, peer):
    """Their ring stores it out of order, and their mask counts places; the NumPy reference says what we say."""
    found, told = ours(peers / "ring"), dict(np.load(peers / "ring" / f"{peer}.npz"))
    config, tensors = read(peers / "ring")
    reference = NumpyDrafter(config, tensors, table=deep().model.embed_tokens.weight, head=deep().lm_head.weight)
    inputs = mx.load(str(peers / "ring" / "inputs.npz"))
    heard = np.concatenate([np.array(inputs["heard0"]), np.array(inputs["heard1"])])
    expected = reference.logits(reference.hidden(inputs["block1"].tolist(), heard))[1:]
    np.testing.assert_allclose(found["logits1"], expected, rtol=1e-4, atol=1e-4)
    differences = apart(found, told)
    assert differences["logits0"] <= CLOSE
    assert differences["logits1"] > 1e-3
    assert differences["logits2"] <= CLOSE


@pytest.mark.parametrize("name", PACKAGINGS)
def test_mlx_dspark_reads_a_packaging_as_we_do(peers, name):
    found, told = ours(peers / name), dict(np.load(peers / name / "mlx_dspark.npz"))
    differences = apart(found, told)
    assert max(differences.values()) <= CLOSE, differences
