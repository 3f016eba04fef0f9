"""The `draftledger` command: look at results, check a machine, record a harmless edit."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from draftledger.errors import ConfigError, CorruptError, DraftledgerError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command; return the exit code, with errors as one line on stderr."""
    options = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = options.run
    try:
        return command(options)
    except DraftledgerError as error:
        print(f"draftledger: error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="draftledger", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    show = commands.add_parser("show", help="print a summary as a table")
    show.add_argument("summary", type=Path, nargs="?", default=Path("results/summary.parquet"))
    show.add_argument("--markdown", action="store_true", help="as Markdown, for documents")
    show.set_defaults(run=_show)
    doctor = commands.add_parser("doctor", help="say what this machine has, what is wrong and what to do")
    doctor.set_defaults(run=_doctor)
    verify = commands.add_parser("verify", help="re-hash every artefact and say which differ from their manifests")
    verify.add_argument("--root", type=Path, default=Path("results"))
    verify.set_defaults(run=_verify)
    accept = commands.add_parser("accept", help="record that an edit of a stage's code changes no result")
    accept.add_argument("stage", help="name of the rule, such as adapter")
    accept.add_argument("--old", required=True, help="the digest that made the results, as a dry-run shows it")
    accept.add_argument("--new", required=True, help="today's digest, as a dry-run shows it")
    accept.add_argument("--reason", required=True)
    accept.set_defaults(run=_accept)
    return parser


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


def _verify(options: argparse.Namespace) -> int:
    from draftledger.provenance.verify import verify

    found = verify(options.root)
    for path, reason in found.altered:
        print(f"altered: {path}: {reason}")
    print(f"{found.checked} artefacts checked, {len(found.altered)} altered", file=sys.stderr)
    return 1 if found.altered else 0


def _accept(options: argparse.Namespace) -> int:
    from draftledger.provenance.atomic import write_json
    from draftledger.provenance.code import ACCEPTED, accepted

    if options.old == options.new:
        raise ConfigError("accept: --old and --new are the same digest; nothing to record")
    edit = {
        "stage": options.stage,
        "old": options.old,
        "new": options.new,
        "reason": options.reason,
        "date": datetime.now(UTC).date().isoformat(),
    }
    write_json(ACCEPTED, {"edits": [*accepted(ACCEPTED), edit]})
    print(json.dumps(edit))
    return 0


if __name__ == "__main__":
    sys.exit(main())
