"""Where an answer ends: inside a round's tokens, at an end-of-sequence id, a stop string or the length."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from draftledger.errors import ConfigError

# A character cut by the window shows as up to three marks at either end, and some decoders strip a first space.
SPARE = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """When an answer ends: after `new_tokens` tokens, at an end-of-sequence id, or once its text holds a stop string.

    `text` turns token ids into text and is needed with `stop`. Raises ConfigError for a limit below one token, an
    empty stop string, or stop strings without `text`.
    """

    new_tokens: int
    eos_ids: frozenset[int]
    stop: tuple[str, ...] = ()
    text: Callable[[Sequence[int]], str] | None = None

    def __post_init__(self) -> None:
        if self.new_tokens < 1:
            raise ConfigError(f"new_tokens: {self.new_tokens} is below 1; the prefill alone gives a token")
        if not all(self.stop) or (self.stop and self.text is None):
            raise ConfigError("stop: a stop string must not be empty, and needs the tokenizer's text; give both")


def cut(produced: Sequence[int], limits: Limits, answer: Sequence[int]) -> tuple[tuple[int, ...], str | None]:
    """Cut a round's tokens, which follow `answer`, where the answer ends, and say why: "eos", "stop" or "length".

    The token that ends it is kept: an end-of-sequence id, or the one that completes a stop string.
    """
    room = limits.new_tokens - len(answer)
    eos = next((i + 1 for i, token in enumerate(produced) if token in limits.eos_ids), None)
    reason = "eos" if eos is not None and eos <= room else "length" if len(produced) >= room else None
    committed = tuple(produced[: eos if reason == "eos" else room])
    stop = _completed(committed, limits, answer) if limits.stop else None
    return (committed[:stop], "stop") if stop else (committed, reason)


def before_stop(text: str, stop: Sequence[str]) -> str:
    """Return an answer's text up to the first stop string in it, or all of it."""
    return text[: min((place for each in stop if (place := text.find(each)) >= 0), default=len(text))]


def _completed(produced: tuple[int, ...], limits: Limits, answer: Sequence[int]) -> int | None:
    """Return after how many of the tokens the text holds a stop string, or null."""
    tail = _tail(answer, limits)
    if not _holds((*tail, *produced), limits):
        return None
    return next(count for count in range(1, len(produced) + 1) if _holds((*tail, *produced[:count]), limits))


def _tail(answer: Sequence[int], limits: Limits) -> Sequence[int]:
    """Return so many of the last tokens that a stop string which is not complete yet cannot begin before them."""
    needed, width = max(map(len, limits.stop)) + SPARE, 8
    while width < len(answer) and len(_text(answer[-width:], limits)) < needed:
        width *= 2
    return answer[-width:]


def _holds(tokens: Sequence[int], limits: Limits) -> bool:
    text = _text(tokens, limits)
    return any(stop in text for stop in limits.stop)


def _text(tokens: Sequence[int], limits: Limits) -> str:
    return limits.text(tokens) if limits.text else ""
