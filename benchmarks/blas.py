"""Float32 GEMM on MLX's CPU back end: the OpenBLAS that we load against the wheel's own BLAS, fresh processes."""

import sys
from pathlib import Path

from _common import finish, interleaved, prepare, ratio

ROUNDS = 5


def main() -> None:
    """Measure both in turn and print GFLOP/s and their ratio."""
    environment = prepare()
    if environment["blas"] is None:
        sys.exit("skipped: no OpenBLAS here, or a back end that needs none")
    from draftledger.models import blas

    path, threads = blas.candidates()[0], environment["threads"]

    def seconds(chosen: Path | None) -> float:
        rate = blas.trial(chosen, threads=threads)
        if rate is None:
            sys.exit(f"the trial of {chosen or 'the wheel'} died")
        return 1 / rate

    ours, theirs = interleaved([lambda: seconds(path), lambda: seconds(None)], rounds=ROUNDS)
    print(f"OpenBLAS {1 / min(ours):.0f} GFLOP/s, the wheel's {1 / min(theirs):.1f} GFLOP/s")
    finish("blas", environment, bar=20, **ratio(ours, theirs))


if __name__ == "__main__":
    main()
