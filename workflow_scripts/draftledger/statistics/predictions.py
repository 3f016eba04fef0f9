"""Whether the predictions of `config/decision.yaml` held."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from draftledger.errors import ConfigError
from draftledger.statistics.decision import Decision

KEYS = {"metric", "arm", "baseline", "scope", "above", "below"}


def judge(decision: Decision, summary: pa.Table) -> list[bool | None]:
    """For each prediction: True if its row's estimate lies within the bounds, None without such a row."""
    rows = summary.to_pylist()
    return [_judge(prediction, rows) for prediction in decision.predictions]


def _judge(prediction: Mapping[str, Any], rows: list[dict[str, Any]]) -> bool | None:
    if not {"metric", "arm"} <= set(prediction) <= KEYS or not {"above", "below"} & set(prediction):
        raise ConfigError(f"prediction {dict(prediction)}: needs metric, arm, and above or below; no other keys")
    wanted = {"scope": "all"} | {key: prediction[key] for key in prediction if key not in ("above", "below")}
    found = [row["estimate"] for row in rows if all(row[key] == value for key, value in wanted.items())]
    if not found:
        return None
    above, below = prediction.get("above", float("-inf")), prediction.get("below", float("inf"))
    return all(above < value < below for value in found)
