"""The GGUF conversion against a NumPy Llama and a by-the-book BPE that read the GGUF themselves."""

import json
import os
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.generate import generate_step

import tiny_gguf
from draftledger.errors import SourceError, UnsupportedError
from draftledger.models import gguf
from draftledger.models.folder import FILES
from draftledger.models.load import Target, load_target
from draftledger.models.tokenizer import Tokenizer

REAL = os.environ.get("DRAFTLEDGER_SMOLLM2")
TEXTS = (
    "The quick brown fox's tail isn't returning the thing it's been looking for; we'll see.",
    "def f(x: int) -> int:\n    return x**2 + 12\n\n\n\tif x >= 3.14159:  # the end\n        pass\n",
    "12345 1 234,567.89 x12y ½ ² Ⅻ ٣٤٥ 2024-01-02  007",
    "👩‍💻🙂🏳️‍🌈 naïve café — “quotes” … €5",
    "彼は東京に住んでいます。今天天气很好,한국어 문장입니다。",
    "   leading, trailing   \r\n\r\n  \u00a0 nbsp\u3000wide   ",
    "<|im_start|>user\nhello<|im_end|>\n<|endoftext|>",
    "",
)
ALPHABET = "abcthe ringing'slm 0123½٣²  \n\t\r\u00a0().,=_-é彼東👍🏽\u200d"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tiny")
    path = tiny_gguf.write(folder / "tiny.gguf")
    (folder / "out").mkdir()
    gguf.convert(path, folder / "out")
    return path, folder / "out"


def worst_difference(path: Path, target: Target, ids: list[int]) -> float:
    """The largest difference between our logits and the reference's."""
    ours = np.array(target.model(mx.array([ids]))[0])
    return float(np.abs(ours - tiny_gguf.reference_logits(path, ids)).max())


def test_logits_equal_a_numpy_llama(tiny: tuple[Path, Path]) -> None:
    path, folder = tiny
    ids = np.random.Generator(np.random.Philox(key=1)).integers(0, 270, 40).tolist()
    assert worst_difference(path, load_target(folder, dtype="float32"), ids) <= 1e-4


def test_logits_with_a_head_of_its_own(tmp_path: Path) -> None:
    path = tiny_gguf.write(tmp_path / "untied.gguf", tied=False)
    gguf.convert(path, tmp_path)
    assert not json.loads((tmp_path / "config.json").read_text())["tie_word_embeddings"]
    assert worst_difference(path, load_target(tmp_path, dtype="float32"), list(range(30))) <= 1e-4


@given(heads=st.integers(1, 4), half=st.integers(1, 5), width=st.integers(1, 3))
def test_unpermute_moves_adjacent_pairs_to_halves(heads: int, half: int, width: int) -> None:
    rows = np.arange(heads * 2 * half * width, dtype=np.float32).reshape(heads, 2 * half, width)
    found = gguf.unpermute(rows.reshape(-1, width), heads).reshape(heads, 2 * half, width)
    for pair in range(half):
        assert np.array_equal(found[:, pair], rows[:, 2 * pair])
        assert np.array_equal(found[:, pair + half], rows[:, 2 * pair + 1])


def test_folder_is_complete_and_repeats(tiny: tuple[Path, Path], tmp_path: Path) -> None:
    path, folder = tiny
    gguf.convert(path, tmp_path)
    assert sorted(item.name for item in folder.iterdir()) == sorted(FILES)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_header_is_sorted_and_float32(tiny: tuple[Path, Path]) -> None:
    with (tiny[1] / "model.safetensors").open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    assert header.pop("__metadata__") == {"format": "mlx"}
    assert list(header) == sorted(header)
    assert {entry["dtype"] for entry in header.values()} == {"F32"}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("pre", ["smollm", "gpt-2"])
def test_tokenizer_equals_slow_bpe(tmp_path: Path, text: str, pre: str) -> None:
    path = tiny_gguf.write(tmp_path / "tiny.gguf", pre=pre)
    tokenizer = gguf.build_tokenizer(gguf.Metadata(gguf.open_gguf(path)))
    slow = tiny_gguf.SlowBPE(path, split_digits=pre == "smollm")
    assert tokenizer.encode(text, add_special_tokens=False).ids == slow.encode(text)


def test_tokenizer_equals_slow_bpe_on_random_text(tiny: tuple[Path, Path]) -> None:
    slow, tokenizer = tiny_gguf.SlowBPE(tiny[0]), Tokenizer.from_folder(tiny[1])

    @settings(max_examples=200, deadline=None)
    @given(st.text(alphabet=ALPHABET, max_size=60))
    def check(text: str) -> None:
        ids = tokenizer.encode(text)
        assert ids == slow.encode(text)
        assert tokenizer.decode(ids) == text

    check()


def test_bos_is_added_where_the_model_wants_it(tmp_path: Path) -> None:
    extra = {"tokenizer.ggml.add_bos_token": True}
    path = tiny_gguf.write(tmp_path / "bos.gguf", extra=extra, drop="tokenizer.chat_template")
    gguf.convert(path, tmp_path)
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.chat("the") == [1, *tokenizer.encode("the")]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"extra": {"general.architecture": "qwen2"}}, "general.architecture is qwen2"),
        ({"extra": {"llama.expert_count": 4}}, "llama.expert_count"),
        ({"extra": {"llama.rope.dimension_count": 8}}, "llama.rope.dimension_count"),
        ({"extra": {"tokenizer.ggml.model": "llama"}}, "llama/smollm"),
        ({"pre": "qwen2"}, "gpt2/qwen2"),
        ({"drop": "llama.block_count"}, "llama.block_count is missing"),
        ({"drop": "tokenizer.ggml.eos_token_id"}, "tokenizer.ggml.eos_token_id is missing"),
        ({"drop": "blk.1.attn_q.weight"}, "model.layers.1.self_attn.q_proj.weight"),
        ({"extra": {"llama.block_count": 1}}, "blk.1."),
    ],
)
def test_what_is_not_handled_is_named(tmp_path: Path, change: dict, name: str) -> None:
    path = tiny_gguf.write(tmp_path / "odd.gguf", **change)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(UnsupportedError, match=name):
        gguf.convert(path, out)
    assert not list(out.iterdir())


@pytest.mark.parametrize("size", [0, 3, 60, 5000, -1])
def test_cut_file_is_refused(tiny: tuple[Path, Path], tmp_path: Path, size: int) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny[0].read_bytes()[:size])
    with pytest.raises(SourceError, match=r"cut\.gguf"):
        gguf.convert(cut, tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason="set DRAFTLEDGER_SMOLLM2 to the SmolLM2-135M-Instruct Q4_1 GGUF")
def test_real_smollm2(tmp_path: Path) -> None:
    path = Path(REAL or "")
    gguf.convert(path, tmp_path)
    target, slow = load_target(tmp_path, dtype="float32"), tiny_gguf.SlowBPE(path)
    for text in TEXTS:
        assert target.tokenizer.encode(text) == slow.encode(text)
    ids = target.tokenizer.chat("Write a Python function that returns the n-th Fibonacci number.")
    difference = worst_difference(path, target, ids)
    answer = [int(token) for token, _ in generate_step(mx.array(ids), target.model, max_tokens=64)]
    print(f"largest logit difference {difference:.2e}\n{target.tokenizer.decode(answer)}")
    assert difference <= 1e-4
