"""Seconds before work begins: a run with nothing to do, the package's import, and the command's help."""

import json
import sys

from _common import ROOT, command_seconds

BARS = {"nothing_to_do": 4.0, "import_beyond_mlx": 0.5, "help": 0.5}
REPEATS = 5
PYTHON = [sys.executable, "-c"]
PATH = f"import sys; sys.path.insert(0, {str(ROOT / 'workflow_scripts')!r}); "
NO_OP = [sys.executable, "-m", "snakemake", "-j1", "-q", "all", "--", "results/summary.parquet"]


def main() -> None:
    """Time each command from the outside; the import is what it costs over importing mlx alone."""
    found = {
        "import_beyond_mlx": _seconds([*PYTHON, PATH + "import mlx.core, draftledger"])
        - _seconds([*PYTHON, "import mlx.core"]),
        "help": _seconds([*PYTHON, PATH + "from draftledger.cli import main; main(['--help'])"]),
    }
    if (ROOT / "results" / "summary.parquet").is_file():
        found["nothing_to_do"] = _seconds(NO_OP)
    else:
        print("nothing_to_do: skipped; run `make summary` first")
    for name, seconds in found.items():
        print(f"{name}: {seconds:.2f} s (bar {BARS[name]})")
    print(json.dumps({"benchmark": "startup", **{name: round(s, 3) for name, s in found.items()}, "bars": BARS}))


def _seconds(command: list[str]) -> float:
    return command_seconds(command, folder=ROOT, repeats=REPEATS)


if __name__ == "__main__":
    main()
