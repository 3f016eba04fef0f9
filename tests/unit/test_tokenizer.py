"""The tokenizer wrapper: chat templates, special tokens, ends of answers."""

import json
from pathlib import Path

import pytest

import tiny_gguf
from draftledger.errors import SourceError, UnsupportedError
from draftledger.models import gguf
from draftledger.models.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tokenizer")
    gguf.convert(tiny_gguf.write(out / "tiny.gguf"), out)
    return out


def changed(folder: Path, out: Path, **settings: object) -> Tokenizer:
    """The tokenizer with settings replaced; None removes one."""
    (out / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    merged = {**json.loads((folder / "tokenizer_config.json").read_text()), **settings}
    kept = {key: value for key, value in merged.items() if value is not None}
    (out / "tokenizer_config.json").write_text(json.dumps(kept))
    return Tokenizer.from_folder(out)


def test_encode_adds_nothing_and_decode_returns_the_text(folder: Path) -> None:
    tokenizer = Tokenizer.from_folder(folder)
    text = "the thing returns 12 é 彼 👍\n"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("") == []
    assert tokenizer.size == len(tiny_gguf.vocabulary())


def test_special_tokens_are_kept_in_the_text(folder: Path) -> None:
    tokenizer = Tokenizer.from_folder(folder)
    assert tokenizer.encode("<|im_end|>") == [2]
    assert tokenizer.decode([2]) == "<|im_end|>"


def test_chat_is_the_rendered_template(folder: Path) -> None:
    tokenizer = Tokenizer.from_folder(folder)
    expected = "<|im_start|>user\nthe ring<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(tokenizer.chat("the ring")) == expected


def test_template_sees_special_tokens_and_json(folder: Path, tmp_path: Path) -> None:
    template = "{{ bos_token }}{% for m in messages %}{{ m | tojson }}{% break %}{% endfor %}"
    tokenizer = changed(folder, tmp_path, chat_template=template, bos_token={"content": "<|im_start|>"})
    assert tokenizer.decode(tokenizer.chat("<é>")) == '<|im_start|>{"role": "user", "content": "<é>"}'


@pytest.mark.parametrize("template", ["{% for %}", "{{ raise_exception('roles must alternate') }}"])
def test_broken_template_is_named(folder: Path, tmp_path: Path, template: str) -> None:
    with pytest.raises(UnsupportedError, match="chat template"):
        changed(folder, tmp_path, chat_template=template).chat("x")


def test_without_a_template_the_text_is_bare(folder: Path, tmp_path: Path) -> None:
    tokenizer = changed(folder, tmp_path, chat_template=None)
    assert tokenizer.chat("the") == tokenizer.encode("the")
    tokenizer = changed(folder, tmp_path, chat_template=None, add_bos_token=True)
    assert tokenizer.chat("the") == [1, *tokenizer.encode("the")]


def test_ends_are_gathered(folder: Path, tmp_path: Path) -> None:
    assert Tokenizer.from_folder(folder).eos_ids == {2}
    assert changed(folder, tmp_path, eos_token_ids=[0]).eos_ids == {0, 2}
    assert changed(folder, tmp_path, eos_token_ids=None, eos_token=None).eos_ids == frozenset()


def test_broken_files_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"tokenizer_config\.json is missing"):
        Tokenizer.from_folder(tmp_path)
    changed(folder, tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(SourceError, match=r"tokenizer\.json"):
        Tokenizer.from_folder(tmp_path)
