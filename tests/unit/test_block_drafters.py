"""Block drafters in the loop: the answer is the target's own, whatever the kind, the block's width and the hits."""

from dataclasses import dataclass, replace

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from scipy.stats import chisquare

from block_drafters import DFLASH2, HEADS, deep
from draftledger.arrays import leaves
from draftledger.decoding.acceptance import sampled
from draftledger.decoding.loop import Limits, decode
from draftledger.decoding.sampling import Sampling, distribution
from draftledger.drafters import dflash, dflash2, dspark
from draftledger.drafters.base import DraftContext
from draftledger.drafters.block_adapter import adapter, load
from draftledger.drafters.formats.write import write_adapter
from draftledger.drafters.initial import initial, uniform_taps
from draftledger.errors import ConfigError, UnsupportedError
from draftledger.models.state import TargetState
from draftledger.rng import generator
from targets import VOCABULARY, dense, greedy, hybrid, prompt

COUNT, BLOCK = 20, 5
SHAPE = {"layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "inner": 48, "block": BLOCK, "taps": 2, "mask_id": 3}
KINDS = {
    "dflash": (dflash, {"attention": "hybrid", "window": 8}),
    "dflash2": (dflash2, {"attention": "sliding", "window": 8, **DFLASH2}),
    "dspark": (dspark, {"attention": "full", **HEADS}),
}
TARGETS = {"dense": dense, "sliding": lambda: deep(10), "hybrid": hybrid}  # the prompt outgrows the window


def spec_of(kind, **changes):
    numbers = {name: changes.pop(name) for name in ("bits", "group_size") if name in changes}
    return {"kind": kind, "shape": {**SHAPE, **KINDS[kind][1], **changes}, **numbers}


def loud(kind, target, **changes):
    """A drafter whose every tensor speaks, unlike one before training."""
    spec = spec_of(kind, **changes)
    config, weights = initial(spec, model=target, key=mx.random.key(1))
    keys = mx.random.split(mx.random.key(2), len(weights))
    noisy = {
        name: weights[name] + 0.3 * mx.random.normal(weights[name].shape, key=key)
        for name, key in zip(sorted(weights), keys, strict=True)
    }
    return adapter(config, noisy, spec=spec, model=target, where="test")


@dataclass
class Helped:
    """A drafter some of whose tokens are exchanged for the answer's, so that every count is accepted sometimes."""

    drafter: object
    answer: list
    rate: float
    place: int = 1
    free: int = 0
    silent: bool = False
    block: int = BLOCK

    def append_context(self, ids, taps=None):
        self.place += len(ids) if self.heard else 0
        self.heard = True
        self.drafter.append_context(ids, taps)

    heard: bool = False

    def propose(self, anchor, k, *, step):
        proposal = self.drafter.propose(anchor, k, step=step)
        right = self.answer[self.place : self.place + proposal.tokens.size]
        draws = generator(0, "help", step).random(len(right))
        tokens = proposal.tokens.tolist()
        tokens[: len(right)] = [
            good if draw < self.rate else tokens[i] for i, (good, draw) in enumerate(zip(right, draws, strict=True))
        ]
        return replace(proposal, tokens=mx.array(tokens, dtype=mx.int32))


def rounds_of(kind, trained, target, ids, *, k, answer=None, rate=0.0, sampling=None):
    state = TargetState(target, taps=trained.taps)
    drafter = KINDS[kind][0].build(DraftContext({"kind": kind}, state, tuple(ids.tolist()), 1, trained, None, sampling))
    drafter = Helped(drafter, answer, rate) if rate else drafter
    width = k or drafter.block
    return list(decode(state, drafter, ids, k=width, limits=Limits(COUNT, frozenset()), sampling=sampling))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", TARGETS)
def test_every_answer_is_the_targets_own_and_every_count_is_accepted(target, kind):
    model, ids = TARGETS[target](), prompt(12, key=1)
    answer, trained, seen = greedy(model, ids, COUNT), loud(kind, TARGETS[target]()), set()
    assert len(set(answer)) >= 8
    for k in (1, 2, 0):
        for rate in (0.0, 0.6) if k else (0.0, 0.6, 1.0):
            rounds = rounds_of(kind, trained, model, ids, k=k, answer=answer, rate=rate)
            assert [token for result in rounds for token in result.committed] == answer
            assert all(result.draft_forwards == 1 for result in rounds[1:])
            assert {result.offered for result in rounds[1:-1]} == {k or trained.module.config.proposals}
            seen |= {result.accepted for result in rounds[1:]} if not k else set()
    assert {0, trained.module.config.proposals} < seen


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_emitted_is_a_sample_of_the_target(kind):
    """A target that knows only the last token: the first two emitted tokens against its own chances of each pair."""
    table = mx.random.normal((VOCABULARY, VOCABULARY), key=mx.random.key(5)) * 3
    table = mx.where(mx.arange(VOCABULARY) % 16 == 0, table, -mx.inf)  # six tokens are enough to count pairs of
    trained, runs = loud(kind, dense()), 400
    hidden = mx.random.normal((2, 32), key=mx.random.key(6))
    logits = mx.where(mx.arange(VOCABULARY) % 16 == 0, trained.module.logits(hidden), -50.0)
    counts = np.zeros((6, 6))
    for run in range(runs):
        sampling = Sampling(1.3, seed=run)
        drafter = KINDS[kind][0].build(DraftContext({"kind": kind}, None, (), 1, trained, None, sampling))
        uniform = generator(run, "draft", 0).random(2)
        proposal = drafter.choose(hidden, logits, mx.array([16], dtype=mx.int32), uniform)
        verified = table[mx.concatenate([mx.array([16]), proposal.tokens])]
        kept, token, *draft = sampled(verified, proposal, 0, sampling=sampling).read.tolist()
        emitted = [*draft[:kept], token]
        if len(emitted) == 1:
            chances = np.array(distribution(table[emitted[-1]][None], sampling)[0], dtype=float)
            emitted.append(int(generator(run, "next", 0).choice(VOCABULARY, p=chances / chances.sum())))
        counts[emitted[0] // 16, emitted[1] // 16] += 1
    p = np.array(distribution(table[::16], Sampling(1.3)), dtype=float)[:, ::16]
    expected = (p[1][:, None] * p).ravel()
    large = expected * runs >= 5
    observed, wanted = counts.ravel(), expected / expected.sum() * runs
    groups = [[*values[large], values[~large].sum()] for values in (observed, wanted)]
    assert chisquare(*groups).pvalue > 1e-4
    assert counts.max() < runs * 0.9


def test_taps_follow_the_published_rule_unless_they_are_listed():
    published = {
        (36, 5): (1, 9, 17, 25, 33),
        (64, 5): (1, 16, 31, 46, 61),
        (24, 5): (1, 6, 11, 16, 21),
        (16, 5): (1, 4, 7, 10, 13),
        (60, 6): (1, 12, 23, 35, 46, 57),
        (48, 6): (1, 10, 19, 27, 36, 45),
    }
    assert {key: uniform_taps(key[1], key[0]) for key in published} == published
    assert uniform_taps(1, 30) == (15,)
    listed = dflash.untrained(spec_of("dflash", taps=[3, 0, 2]), model=hybrid())
    assert listed.taps == (3, 0, 2)


def test_a_fresh_drafter_is_named_by_its_key_and_begins_with_a_quiet_head():
    target = hybrid()
    one, two, other = (initial(spec_of("dspark"), model=target, key=mx.random.key(key))[1] for key in (1, 1, 2))
    assert all(mx.array_equal(one[name], two[name]) for name in one)
    assert not mx.array_equal(one["fc.weight"], other["fc.weight"])
    norm = target.language_model.model.norm.weight if "language_model" in target else target.model.norm.weight
    assert mx.allclose(one["norm.weight"], 0.3 * norm)
    assert not one["markov_head.markov_w2.weight"].any()


@pytest.mark.parametrize("kind", KINDS)
def test_a_drafter_that_was_written_is_the_same_when_loaded(tmp_path, kind):
    target, made = dense(), loud(kind, dense())
    path = tmp_path / "adapter.safetensors"
    write_adapter(path, made.module.config, leaves(made.module.parameters()))
    loaded = KINDS[kind][0].load({"kind": kind}, path, model=target)
    assert loaded.taps == made.taps
    assert loaded.module.config == made.module.config
    one, two = leaves(loaded.module.parameters()), leaves(made.module.parameters())
    assert all(mx.array_equal(one[name], two[name]) for name in two)
    with pytest.raises(UnsupportedError, match=f"is a {kind} drafter"):
        load({"kind": "other"}, path, model=target)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", [4, 8])
def test_a_quantised_drafter_keeps_its_tables_and_leaves_the_answer_as_it_is(kind, bits):
    target, ids = dense(), prompt(12, key=1)
    plain, packed = loud(kind, target), loud(kind, target, bits=bits, group_size=32, inner=64)
    parts = dict(packed.module.named_modules())
    assert isinstance(parts["fc"], nn.QuantizedLinear)
    assert isinstance(parts["layers.0.mlp.down_proj"], nn.QuantizedLinear)
    kept = ("codebook", "markov", "confidence", "base_kernel", "kernel_projection")
    names = [name for name in leaves(plain.module.parameters()) if any(part in name for part in kept)]
    tables = leaves(packed.module.parameters())
    assert all(tables[name].dtype == mx.float32 for name in names)
    rounds = rounds_of(kind, packed, target, ids, k=0)
    assert [token for result in rounds for token in result.committed] == greedy(target, ids, COUNT)
    with pytest.raises(ConfigError, match="32"):
        loud(kind, target, bits=bits, group_size=32, inner=40)


def test_a_drafter_of_another_target_is_refused():
    made = loud("dflash", hybrid(), taps=[0, 3])
    with pytest.raises(UnsupportedError, match="taps layer 3"):
        adapter(made.module.config, leaves(made.module.parameters()), spec=made.spec, model=dense(), where="test")


def test_weights_take_the_targets_dtype():
    target = dense()
    config, weights = initial(spec_of("dspark"), model=target, key=mx.random.key(1))
    half = {name: value.astype(mx.bfloat16) for name, value in weights.items()}
    module = adapter(config, half, spec={"kind": "dspark"}, model=target, where="test").module
    assert {value.dtype for value in leaves(module.parameters()).values()} == {mx.float32}


def test_an_arm_without_its_drafter_is_told_so():
    with pytest.raises(ConfigError, match="no drafter"):
        dflash.build(DraftContext({"kind": "dflash"}, TargetState(dense()), (), 1))
