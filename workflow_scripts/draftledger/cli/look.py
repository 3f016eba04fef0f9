"""Sub-commands that show something: the summary, and what this machine has."""

import argparse
from pathlib import Path
from typing import Any

from draftledger.errors import CorruptError


def add(commands: Any) -> None:
    """Add `show` and `doctor`."""
    show = commands.add_parser("show", help="print a summary as a table")
    show.add_argument("summary", type=Path, nargs="?", default=Path("results/summary.parquet"))
    show.add_argument("--markdown", action="store_true", help="as Markdown, for documents")
    show.set_defaults(run=_show)
    doctor = commands.add_parser("doctor", help="say what this machine has, what is wrong and what to do")
    doctor.set_defaults(run=_doctor)


def _show(options: argparse.Namespace) -> int:
    import pyarrow.parquet as pq
    from rich.console import Console

    from draftledger.figures.table import markdown_table, terminal_table
    from draftledger.provenance.manifest import verified

    if not options.summary.is_file():
        raise CorruptError(f"{options.summary}: absent; make it with `snakemake -j1 {options.summary}`")
    verified(options.summary)
    table = pq.read_table(options.summary)
    if options.markdown:
        print(markdown_table(table), end="")
    else:
        Console().print(terminal_table(table))
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from draftledger.models.doctor import main as doctor

    return doctor()
