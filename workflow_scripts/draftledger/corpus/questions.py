"""Questions for a target to answer: templates filled from the corpus, each a function of (seed, number) alone."""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from draftledger.errors import ConfigError
from draftledger.rng import generator

SLOT = re.compile(r"\{([a-z]+)(\d*)(?::(\d+)-(\d+))?\}")
SENTENCE = re.compile(r"(?:^|(?<=[.!?]\s))([A-Z][A-Za-z ,;'()-]{40,200}\.)(?=\s|$)")
LONGEST_FUNCTION = 14  # lines: what fits a question


@dataclass(frozen=True, slots=True)
class Question:
    """A question by number, its kind, and the template (place in its kind) that it was made from."""

    number: int
    kind: str
    template: int
    text: str


@dataclass(frozen=True)
class Slots:
    """What the corpus gives to fill templates with: word lists by name, sentences, and small Python functions."""

    words: Mapping[str, Sequence[str]]
    texts: Sequence[str]

    @cached_property
    def sentences(self) -> list[str]:
        """Return the distinct plain sentences of the texts, in order."""
        return list(dict.fromkeys(found for text in self.texts for found in SENTENCE.findall(text)))

    @cached_property
    def functions(self) -> list[tuple[str, str, str, str]]:
        """Return (name, first docstring sentence, head with docstring, body's source) of each small function."""
        return [found for text in self.texts for found in _functions(text)]


def slots_of(documents: pa.Table, *, lists: Mapping[str, str]) -> Slots:
    """Read the slots of a corpus; `lists` names the word lists by a glob on document ids.

    Raises ConfigError when a word list has no words.
    """
    names, texts = documents["id"].to_pylist(), documents["text"].to_pylist()
    words: dict[str, list[str]] = {}
    for slot, glob in lists.items():
        found = [text for name, text in zip(names, texts, strict=True) if fnmatchcase(name, glob)]
        words[slot] = sorted({word.strip() for text in found for word in text.splitlines() if word.strip()})
        if not words[slot]:
            raise ConfigError(f"continuations.words.{slot}: no document matches {glob!r}; check the corpus's ids")
    prose = [t for n, t in zip(names, texts, strict=True) if not any(fnmatchcase(n, g) for g in lists.values())]
    return Slots(words, prose)


def _functions(text: str) -> list[tuple[str, str, str, str]]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []
    lines, found = text.splitlines(), []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and (docstring := ast.get_docstring(node)) and not node.decorator_list:
            purpose = docstring.split("\n\n")[0].replace("\n", " ").strip()
            doc, last = node.body[0], node.end_lineno or node.lineno
            head, body = lines[node.lineno - 1 : node.body[0].lineno - 1], lines[doc.end_lineno or 0 : last]
            if 0 < len(body) <= LONGEST_FUNCTION and 20 < len(purpose) < 160 and len(node.body) > 1:
                told = f'{" " * doc.col_offset}"""{purpose}"""'
                found.append((node.name, purpose, _outdented([*head, told]), _outdented(head + body)))
    return found


def _outdented(lines: Sequence[str]) -> str:
    margin = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[margin:] if line[:margin].isspace() or not margin else line for line in lines)


@dataclass(frozen=True)
class Questions:
    """The questions of one configuration: `templates` is the questions file, `shares` weighs its kinds."""

    templates: Mapping[str, Any]
    slots: Slots
    shares: Mapping[str, float]
    seed: int

    def question(self, number: int) -> Question:
        """Return question `number`; it depends on no other question.

        Raises ConfigError for an unknown kind or slot, or one that the corpus leaves empty.
        """
        rng = generator(self.seed, "question", number)
        kinds, weights = list(self.shares), np.array(list(self.shares.values()), dtype=float)
        kind = kinds[int(rng.choice(len(kinds), p=weights / weights.sum()))]
        known = self.templates["kinds"].get(kind)
        if not known:
            raise ConfigError(
                f"continuations.kinds: {kind} has no templates; it may be {', '.join(self.templates['kinds'])}"
            )
        place = int(rng.integers(len(known)))
        return Question(number, kind, place, self._fill(known[place], rng))

    def _fill(self, template: str, rng: np.random.Generator) -> str:
        drawn: dict[tuple[str, str], str] = {}
        function = int(rng.integers(2**31))

        def value(match: re.Match[str]) -> str:
            slot, again, low, high = match.groups()
            if slot == "article":
                return match.group(0)
            if (slot, again) not in drawn:
                drawn[slot, again] = (
                    str(rng.integers(int(low), int(high) + 1)) if low else self._draw(slot, rng, function)
                )
            return drawn[slot, again]

        return ARTICLE.sub(_article, SLOT.sub(value, template))

    def _draw(self, slot: str, rng: np.random.Generator, function: int) -> str:
        places = {"function": 0, "purpose": 1, "head": 2, "code": 3}
        if slot in places:
            return self._some(self.slots.functions, slot, lambda found: found[function % len(found)])[places[slot]]
        if slot == "sentence":
            return self._some(self.slots.sentences, slot, lambda found: found[int(rng.integers(len(found)))])
        found = self.templates["lists"].get(slot) or self.slots.words.get(slot) or []
        return self._some(found, slot, lambda words: words[int(rng.integers(len(words)))])

    def _some(self, found: Sequence[Any], slot: str, pick: Callable[[Sequence[Any]], Any]) -> Any:
        if not found:
            raise ConfigError(
                f"continuations: nothing in the corpus fills {{{slot}}}; add such text or drop the templates"
            )
        return pick(found)


ARTICLE = re.compile(r"\{article\d*\}(\s+)(\w)")


def _article(match: re.Match[str]) -> str:
    return f"{'an' if match.group(2).lower() in 'aeiou' else 'a'}{match.group(1)}{match.group(2)}"
