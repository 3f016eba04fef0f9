"""Summaries and histories that look like measured ones, for the tests of figures, page and tables."""

import numpy as np
import pyarrow as pa

ARMS = ("ar", "mlx_lm_ar", "lookup", "small_model", "block_lora_k4", "block_lora_k8", "dflash", "oracle")
CATEGORIES = ("code", "dialogue", "extraction", "maths", "reasoning", "rewriting", "roleplay", "summary", "writing")
TEXT = ("metric", "arm", "baseline", "scope", "unit", "population", "verdict", "decision")
COUNTS = ("slot", "n_seeds", "n_launches", "n_prompts", "n_sessions", "n_rounds")
FLOATS = ("estimate", "low", "high", "confidence", "floor", "mde")
ORDER = (
    *("metric", "arm", "baseline", "scope", "slot", "unit", "estimate", "low", "high", "confidence", "population"),
    *("n_seeds", "n_launches", "n_prompts", "n_sessions", "n_rounds", "floor", "mde", "verdict", "decision"),
    "inputs",
)
TYPES = {
    **dict.fromkeys(TEXT, pa.string()),
    **dict.fromkeys(COUNTS, pa.int32()),
    **dict.fromkeys(FLOATS, pa.float64()),
    "inputs": pa.list_(pa.string()),
}
SCHEMA = pa.schema([(name, TYPES[name]) for name in ORDER])


def row(metric: str, arm: str, estimate: float, **more: object) -> dict[str, object]:
    """Return one summary row; intervals of 6 % unless given."""
    known = {
        **dict.fromkeys(SCHEMA.names),
        **{"metric": metric, "arm": arm, "scope": "all", "unit": "share", "estimate": estimate},
        **{"low": estimate * 0.94, "high": estimate * 1.06, "confidence": 0.95},
        **{
            "population": "seeds and prompts",
            "n_seeds": 3,
            "n_launches": 3,
            "n_prompts": 36,
            "n_sessions": 2,
            "n_rounds": 0,
        },
        **{"decision": "d" * 64, "inputs": ["a" * 64, "b" * 64]},
    }
    return known | more


def summary(arms: tuple[str, ...] = ARMS, *, slots: int = 4) -> pa.Table:
    """Return a summary of these arms; the first two are the baselines when there are at least three."""
    rows = []
    for place, arm in enumerate(arms):
        if len(arms) > 2 and place < 2:
            rows.append(row("decode_tokens_per_second", arm, 31.0 + place, unit="tokens per second"))
            rows.append(row("tokens_per_round", arm, 1.0, unit="tokens per round"))
            rows.append(row("speedup_decode", arm, 1.03 - place / 17, baseline=arms[1 - place], floor=0.03))
        else:
            rows += _speculating(arm, place, slots)
    rows.sort(key=lambda row: [row["metric"], row["arm"], row["baseline"] or "", row["scope"], row["slot"] or 0])
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _speculating(arm: str, place: int, slots: int) -> list[dict[str, object]]:
    random = np.random.default_rng(place)
    rate = 0.45 + 0.06 * place
    accepted = sum(rate**slot for slot in range(1, slots + 1))
    speed = 0.7 + 0.16 * place
    word = "faster" if speed > 1.3 else "slower" if speed < 0.9 else "undecidable at this size (MDE 12 %)"
    ratio = {"floor": 0.03, "mde": 0.12, "verdict": word}
    rows = [
        row("speedup_decode", arm, speed, baseline="ar", unit="ratio", **ratio),
        row("speedup_decode", arm, speed * 0.94, baseline="mlx_lm_ar", **ratio),
        row("acceptance_rate", arm, accepted / slots),
        row("accepted_per_round", arm, accepted),
        row("tokens_per_round", arm, accepted + 1, unit="tokens per round"),
        row("decode_tokens_per_second", arm, 31 * speed, unit="tokens per second"),
    ]
    for metric, cost in (("draft_ms", 9.0 + place), ("verify_ms", 36.0), ("commit_ms", 2.4)):
        rows.append(row(metric, arm, cost, unit="ms per round", low=None, high=None, confidence=None))
    for slot in range(1, slots + 1):
        rows.append(row("survival_joint", arm, rate**slot, slot=slot))
    for category in CATEGORIES:
        value = accepted * random.uniform(0.5, 1.5)
        rows.append(row("accepted_per_round", arm, value, scope=f"category:{category}"))
    return rows


def history(seed: int, steps: int = 60) -> pa.Table:
    """Return one seed's training history."""
    random = np.random.default_rng(seed)
    rows = []
    for step in range(steps + 1):
        loss, agreement = 1.2 + 3.4 * np.exp(-step / 18), 0.55 * (1 - np.exp(-step / 20))
        for split, noise in (("train", 0.12), ("validation", 0.02)):
            if split == "train" or step % 10 == 0:
                shift = random.normal() * noise
                rows.append({"step": step, "loss": loss + shift, "agreement": agreement - shift / 6, "split": split})
    return pa.Table.from_pylist(rows)


def costs() -> pa.Table:
    """Return forward costs: draft is linear throughout, verify leaves its line after width 16."""
    random = np.random.default_rng(7)
    rows = []
    for kind, base, slope in (("verify", 28.0, 0.9), ("draft", 6.0, 0.35)):
        for width in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32):
            step = 22.0 if kind == "verify" and width > 16 else 0.0
            for _ in range(4):
                time = (base + slope * width + step) * (1 + random.normal() * 0.008)
                rows.append({"width": width, "milliseconds": time, "kind": kind})
    return pa.Table.from_pylist(rows)
