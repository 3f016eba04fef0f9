"""Rounds and positions as rows: the schemas of decode's two tables."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from draftledger.decoding.loop import Round
from draftledger.measurement.exactness import Position

_WHO = [("arm", pa.string()), ("seed", pa.int32()), ("launch", pa.int32())]

ROUNDS = pa.schema(
    [
        *_WHO,
        ("prompt", pa.string()),
        ("category", pa.string()),
        ("noise", pa.int32()),
        ("round", pa.int32()),
        ("anchor", pa.int32()),
        ("free", pa.int32()),
        ("free_accepted", pa.int32()),
        ("draft", pa.list_(pa.int32())),
        ("offered", pa.int32()),
        ("accepted", pa.int32()),
        ("committed", pa.list_(pa.int32())),
        ("truncated", pa.bool_()),
        ("draft_forwards", pa.int32()),
        ("verify_forwards", pa.int32()),
        ("replay_forwards", pa.int32()),
        ("stop", pa.string()),
        ("reason", pa.string()),
        ("uniform", pa.list_(pa.float64())),
        ("p", pa.list_(pa.float32())),
        ("q", pa.list_(pa.float32())),
    ]
)

POSITIONS = pa.schema(
    [
        *_WHO,
        ("prompt", pa.string()),
        ("noise", pa.int32()),
        ("position", pa.int32()),
        ("token", pa.int32()),
        ("argmax", pa.int32()),
        ("margin_ulp", pa.float32()),
        ("runner_up_ulp", pa.float32()),
        ("differs_from_ar", pa.bool_()),
        ("ok", pa.bool_()),
    ]
)


def round_row(result: Round) -> dict[str, Any]:
    """Return a round as a row, without whose it is."""
    decisions = result.decisions
    return {
        "round": result.index,
        "anchor": result.anchor,
        "free": result.free,
        "free_accepted": result.free_accepted,
        "draft": list(result.draft),
        "offered": result.offered,
        "accepted": result.accepted,
        "committed": list(result.committed),
        "truncated": result.truncated,
        "draft_forwards": result.draft_forwards,
        "verify_forwards": 1,
        "replay_forwards": result.replay_forwards,
        "stop": result.stop,
        "reason": result.reason,
        **{name: None if decisions is None else list(getattr(decisions, name)) for name in ("uniform", "p", "q")},
    }


def position_rows(
    positions: Sequence[Position], *, ar: Sequence[int] | None, allowed: float
) -> Iterator[dict[str, Any]]:
    """Yield positions as rows; `differs_from_ar` is null for the arm itself and after the first difference."""
    apart = ar is None
    for place, position in enumerate(positions):
        differs = None if apart else place >= len(ar or ()) or position.token != (ar or ())[place]
        apart = apart or bool(differs)
        yield {
            "position": place,
            "token": position.token,
            "argmax": position.argmax,
            "margin_ulp": position.margin_ulp,
            "runner_up_ulp": position.runner_up_ulp,
            "differs_from_ar": differs,
            "ok": position.margin_ulp <= allowed,
        }


def answers(rounds: pa.Table) -> dict[tuple[str, int], tuple[int, ...]]:
    """Return each answer's tokens by (prompt, noise), rounds in order."""
    found: dict[tuple[str, int], list[tuple[int, list[int]]]] = {}
    columns = rounds.select(["prompt", "noise", "round", "committed"]).to_pylist()
    for row in columns:
        found.setdefault((row["prompt"], row["noise"]), []).append((row["round"], row["committed"]))
    return {who: tuple(t for _, tokens in sorted(rows) for t in tokens) for who, rows in found.items()}
