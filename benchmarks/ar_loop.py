"""Our autoregressive loop against mlx-lm's pipelined `generate_step`: same model, same prompt, one process."""

import time
from collections.abc import Callable

from _common import default_target, finish, interleaved, prepare, ratio

TOKENS, ROUNDS = 48, 12
PROMPT = "Write a short story about a lighthouse keeper who learns to fly a kite."


def main() -> None:
    """Time both loops in turn and print tokens a second and the ratio ours/theirs."""
    environment = prepare()
    import mlx.core as mx

    from draftledger.decoding.arms import Arm, run_arm
    from draftledger.decoding.loop import Limits

    target = default_target(environment)
    ids, limits = target.tokenizer.chat(PROMPT), Limits(TOKENS, frozenset())

    def side(kind: str) -> Callable[[], float]:
        def run() -> float:
            rounds = run_arm(target.model, Arm(kind, {"kind": kind}), ids, limits=limits, noise=0)
            next(rounds)
            start = time.perf_counter()
            list(rounds)
            return time.perf_counter() - start

        return run

    sides = [side("ar"), side("mlx_lm_ar")]
    for run in sides:
        run()
    ours, theirs = interleaved(sides, rounds=ROUNDS)
    mx.synchronize()
    print(f"ours {ROUNDS * (TOKENS - 1) / sum(ours):.2f} tok/s, mlx-lm {ROUNDS * (TOKENS - 1) / sum(theirs):.2f} tok/s")
    finish("ar_loop", environment, bar=0.99, **ratio(ours, theirs))


if __name__ == "__main__":
    main()
