"""Text to tokens and back for a target folder, with its chat template."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from draftledger.errors import SourceError, UnsupportedError
from draftledger.models.folder import read_json

_SPECIALS = ("bos_token", "eos_token", "unk_token", "pad_token")


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A tokenizer.json with its tokenizer_config.json; `eos_ids` are the tokens that end an answer."""

    backend: tokenizers.Tokenizer
    settings: dict[str, Any]
    eos_ids: frozenset[int]

    @classmethod
    def from_folder(cls, folder: Path) -> "Tokenizer":
        """Read both files; raises SourceError when one is absent or broken."""
        path = folder / "tokenizer.json"
        settings = read_json(folder / "tokenizer_config.json")
        try:
            backend = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises Exception itself
            raise SourceError(f"{path}: not a readable tokenizer: {error}") from error
        return cls(backend, settings, eos_ids(backend, settings))

    @property
    def size(self) -> int:
        """One more than the highest token id."""
        return max(self.backend.get_vocab(with_added_tokens=True).values()) + 1

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; nothing is added, but special tokens written in the text are recognised."""
        return self.backend.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens included; an incomplete character becomes U+FFFD."""
        return self.backend.decode(list(ids), skip_special_tokens=False)

    def chat(self, text: str) -> list[int]:
        """Token ids of one user message, ready for the answer.

        Without a chat template: the bare text, after the first token that the model wants, if any.
        Raises UnsupportedError when the template cannot be rendered.
        """
        template = self.settings.get("chat_template")
        if template is not None:
            return self.encode(self._render(template, text))
        ids = self.backend.encode(text, add_special_tokens=True).ids
        bos = special_id(self.backend, self.settings, "bos_token")
        if bos is None or not self.settings.get("add_bos_token") or ids[:1] == [bos]:
            return ids
        return [bos, *ids]

    def _render(self, template: str, text: str) -> str:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        names = {name: special_text(self.settings, name) for name in _SPECIALS}
        variables = {name: value for name, value in names.items() if value is not None}
        messages = [{"role": "user", "content": text}]
        try:
            compiled = environment.from_string(template)
            return compiled.render(messages=messages, add_generation_prompt=True, **variables)
        except TemplateError as error:
            raise UnsupportedError(f"the chat template cannot be rendered: {error}") from error


def special_text(settings: dict[str, Any], name: str) -> str | None:
    """The text of a special token, which tokenizer_config.json gives plainly or as an object."""
    value = settings.get(name)
    return value["content"] if isinstance(value, dict) else value


def special_id(backend: tokenizers.Tokenizer, settings: dict[str, Any], name: str) -> int | None:
    """The id of a special token, None when there is none."""
    text = special_text(settings, name)
    return None if text is None else backend.token_to_id(text)


def eos_ids(backend: tokenizers.Tokenizer, settings: dict[str, Any]) -> frozenset[int]:
    """Ids under `eos_token_ids`, and the one of `eos_token`."""
    ids = set(settings.get("eos_token_ids", []))
    last = special_id(backend, settings, "eos_token")
    return frozenset(ids if last is None else ids | {last})


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> None:
    raise TemplateError(message)
