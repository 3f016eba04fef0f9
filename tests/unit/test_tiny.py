"""The tiny target: a tokenizer that loses nothing, keyed weights, and training that repeats to the bit."""

from functools import cache

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx.utils import tree_flatten
from mlx_lm.models.cache import ArraysCache, KVCache, make_prompt_cache

from draftledger.errors import ConfigError
from draftledger.models.load import load_target
from draftledger.models.tiny import EOS, architecture, build_model, byte_tokenizer, train_model, write_tiny
from draftledger.provenance.digest import content_digest
from targets import SPEC, VOCABULARY

TEXTS = [f"{n}. a plain cup and {n} small kites\n" for n in range(60)]
TRAINING = {"seed": 1, "length": 12, "batch": 4, "steps": 2, "learning_rate": 4e-3}
WHOLE = SPEC | TRAINING | {"vocabulary": 300}
STREAM = np.tile(np.arange(20, dtype=np.int32), 20)


@cache
def backend():
    return byte_tokenizer(TEXTS, vocabulary=300)


def model(seed: int = 1):
    return build_model(architecture(SPEC, vocabulary=VOCABULARY, eos=0), seed=seed)


def weights(net) -> dict[str, np.ndarray]:
    return {name: np.array(value) for name, value in tree_flatten(net.parameters())}


def same(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> bool:
    return one.keys() == two.keys() and all((one[name] == two[name]).all() for name in one)


@given(st.text())
def test_any_text_comes_back(text):
    ids = backend().encode(text).ids
    assert backend().decode(ids, skip_special_tokens=False) == text
    assert all(0 <= token < 300 for token in ids)


def test_the_end_token_is_id_0_and_merges_shorten_text():
    assert backend().token_to_id(EOS) == 0
    assert backend().encode(f"a{EOS}").ids[-1] == 0
    assert backend().get_vocab_size() == 300
    assert len(backend().encode(TEXTS[3]).ids) < len(TEXTS[3]) / 1.5
    assert byte_tokenizer(TEXTS, vocabulary=300).to_str() == backend().to_str()


def test_weights_depend_on_the_seed_alone():
    mx.random.seed(1)
    one = weights(model())
    mx.random.seed(2)
    assert same(one, weights(model()))
    other = weights(model(2))
    drawn = [name for name, value in one.items() if np.ptp(value) > 0]
    assert len(drawn) > len(one) / 2
    assert all((one[name] != other[name]).any() for name in drawn)
    assert len({one[name].tobytes() for name in drawn}) == len(drawn)  # no two tensors share a draw


def test_a_weight_does_not_depend_on_the_layers_after_it():
    one = weights(build_model(architecture(SPEC, vocabulary=VOCABULARY, eos=0), seed=1))
    two = weights(build_model(architecture(SPEC | {"layers": 8}, vocabulary=VOCABULARY, eos=0), seed=1))
    assert same(one, {name: two[name] for name in one})


def test_three_layers_in_four_are_recurrent():
    kinds = [type(cache) for cache in make_prompt_cache(model())]
    assert kinds == [ArraysCache, ArraysCache, ArraysCache, KVCache]


def test_training_repeats_to_the_bit_and_changes_every_tensor():
    made = []
    for state in (1, 2):
        mx.random.seed(state)
        net = model()
        loss = train_model(net, STREAM, spec=TRAINING)
        made.append((loss, weights(net)))
    assert made[0][0] == made[1][0]
    assert same(made[0][1], made[1][1])
    first = weights(model())
    assert all((made[0][1][name] != first[name]).any() for name in first)


def test_training_learns():
    losses = [train_model(model(), STREAM, spec=TRAINING | {"steps": steps}) for steps in (1, 30)]
    assert losses[1] < 0.5 * losses[0]


def test_a_corpus_shorter_than_a_window_is_refused():
    with pytest.raises(ConfigError, match="add text"):
        train_model(model(), STREAM[:13], spec=TRAINING)


def test_a_written_target_loads_and_is_written_the_same_again(tmp_path):
    losses = [write_tiny(TEXTS, tmp_path / name, spec=WHOLE) for name in ("one", "two")]
    assert losses[0] == losses[1]
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    for name in files:
        assert content_digest(tmp_path / "one" / name) == content_digest(tmp_path / "two" / name)
    target = load_target(tmp_path / "one", dtype="float32")
    assert (target.vocab_size, target.eos_ids, target.context_length) == (300, frozenset({0}), 4096)
    assert target.tokenizer.decode(target.tokenizer.chat(TEXTS[0])) == TEXTS[0]
    stored = dict(mx.load(str(tmp_path / "one" / "model.safetensors")).items())
    assert same(weights(target.model), {name: np.array(value) for name, value in stored.items()})
    logits = target.model(mx.array([target.tokenizer.encode(TEXTS[0])]))
    assert logits.shape[-1] == 300
    assert np.isfinite(np.array(logits)).all()


def test_a_loaded_target_computes_what_was_trained(tmp_path):
    texts = ["abcabcabcabcabcabc"] * 40
    write_tiny(texts, tmp_path / "t", spec=WHOLE | {"steps": 60, "vocabulary": 257})
    target = load_target(tmp_path / "t", dtype="float32")
    ids = target.tokenizer.encode("abcabcabc")
    guesses = mx.argmax(target.model(mx.array([ids]))[0], axis=-1).tolist()
    assert guesses[3:-1] == ids[4:]
