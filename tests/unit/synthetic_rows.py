"""Rounds, positions and timing rows that look like measured ones, for the tests of the summary."""

import numpy as np
import pyarrow as pa

SEEDS, SESSIONS, PROMPTS, REPEATS = (0, 1, 2), 2, 12, 2
ARMS: dict[str, dict] = {
    "ar": {"kind": "ar"},
    "ar_twin": {"kind": "ar", "twin_of": "ar"},
    "mlx_lm_ar": {"kind": "mlx_lm_ar"},
    "lookup": {"kind": "lookup", "k": 4},
    "idle": {"kind": "lookup", "k": 4},
    "untrained": {"kind": "block_lora", "k": 4},
    "block_lora": {"kind": "block_lora", "k": 4, "control": "untrained"},
    "dflash": {"kind": "dflash", "k": 3},
}
SEEDED = ("block_lora", "dflash")
SKILL = {"lookup": 0.3, "untrained": 0.05, "block_lora": 0.6, "dflash": 0.5}
SPEED = {"lookup": 1.02, "idle": 1.0, "block_lora": 1.6, "dflash": 0.7}
LOOPED = ("p00", "p01", "p02")
PLACE = {arm: place for place, arm in enumerate(ARMS)}
Study = dict[str, pa.Table]
Row = dict[str, object]


def category(prompt: str) -> str:
    return ("code", "maths", "prose")[int(prompt[1:]) % 3]


def answer(arm: str, seed: int | None, prompt: str) -> list[Row]:
    """Rounds of one answer of 40 tokens, with its prefill row; the looped prompts repeat four tokens."""
    generator = np.random.Generator(np.random.Philox(key=[PLACE[arm] * 100 + (seed or 0), int(prompt[1:])]))
    tokens = [t % 4 if prompt in LOOPED else t for t in range(40)]
    k, free = ARMS[arm].get("k", 0) if arm in SKILL else 0, int(arm in ("block_lora", "untrained"))
    known = {"arm": arm, "seed": seed, "launch": None if seed is None else 0, "prompt": prompt, "noise": 0}
    known["category"] = category(prompt)
    rows: list[Row] = []
    while tokens:
        prefill = not rows
        hits = [*(generator.random(k) < SKILL.get(arm, 0)).tolist(), False]
        offered, accepted = (0, 0) if prefill else (k, hits.index(False))
        length = 1 if prefill else accepted + 1 + free
        committed, tokens = tokens[:length], tokens[length:]
        draft = [7] * (0 if prefill else offered + free)
        rows.append(
            known
            | {"round": len(rows) - 1, "anchor": 0, "draft": draft}
            | {name: 0 if prefill else free for name in ("free", "free_accepted")}
            | {"offered": offered, "accepted": accepted, "committed": committed, "truncated": len(committed) < length}
            | {"draft_forwards": int(bool(draft)), "verify_forwards": 1, "replay_forwards": 0, "stop": None}
        )
    rows[-1]["stop"] = "length"
    return rows


def checks(rows: list[Row]) -> list[Row]:
    """One position row for every emitted token; every fifth has a runner-up that would pass."""
    found: dict[tuple, int] = {}
    positions = []
    for row in rows:
        for token in row["committed"]:
            key = (row["arm"], row["seed"], row["prompt"])
            place = found[key] = found.get(key, -1) + 1
            gap = 2.0 if place % 5 == 0 else 1e5
            known = {name: row[name] for name in ("arm", "seed", "launch", "prompt", "noise")}
            positions.append(
                known
                | {"position": place, "token": token, "argmax": token, "margin_ulp": 0.0, "runner_up_ulp": gap}
                | {"differs_from_ar": None if row["arm"] == "ar" else place == 39, "ok": True}
            )
    return positions


def clocked(arm: str, seed: int | None, session: int, prompt: str, repeat: int, mode: str) -> Row:
    generator = np.random.Generator(
        np.random.Philox(key=[PLACE[arm] * 1000 + (seed or 0) * 10 + session, int(prompt[1:]) * 10 + repeat])
    )
    decode = 2.0 / SPEED.get(arm, 1.0) * np.exp(0.004 * generator.standard_normal() + 0.02 * int(prompt[1:]))
    staged = mode == "staged"
    known = {"session": session, "seed": seed, "launch": None if seed is None else 0, "arm": arm, "prompt": prompt}
    return (
        known
        | {"category": category(prompt), "noise": repeat, "repeat": repeat, "order": 0, "mode": mode}
        | {"prompt_tokens": 10, "new_tokens": 40, "rounds": 20, "prefill_s": 0.1, "ttft_s": 0.125, "decode_s": decode}
        | {"total_s": decode + 0.125, "draft_s": 0.2 if staged and arm in SKILL else None}
        | {"verify_s": 1.0 if staged else None, "commit_s": 0.1 if staged else None, "peak_bytes": 2**30 + PLACE[arm]}
    )


def study(seeds: tuple[int, ...] = SEEDS, sessions: int = SESSIONS, prompts: int = PROMPTS) -> Study:
    """Tables of a whole study: `mlx_lm_ar` and the twin are only timed, `untrained` is only decoded."""
    names = [f"p{number:02}" for number in range(prompts)]
    decoded = [arm for arm in ARMS if arm not in ("mlx_lm_ar", "ar_twin")]
    rounds = [
        row
        for arm in decoded
        for seed in (seeds if arm in SEEDED else (None,))
        for prompt in names
        for row in answer(arm, seed, prompt)
    ]
    timing = [
        clocked(arm, seed, session, prompt, repeat, mode)
        for seed in seeds
        for session in range(sessions)
        for arm in ARMS
        if arm != "untrained"
        for prompt in names
        for mode, repeats in (("plain", REPEATS), ("staged", 1))
        for repeat in range(repeats)
        if mode == "plain" or arm not in ("mlx_lm_ar", "ar_twin")
    ]
    return {"rounds": table(rounds), "positions": table(checks(rounds)), "timing": table(timing)}


def table(rows: list[Row]) -> pa.Table:
    integers = {"seed": pa.int32(), "launch": pa.int32()}
    lists = {"draft": pa.list_(pa.int32()), "committed": pa.list_(pa.int32())}
    raw = pa.Table.from_pylist(rows)
    kinds = integers | lists
    return raw.cast(pa.schema([(field.name, kinds.get(field.name, field.type)) for field in raw.schema]))
