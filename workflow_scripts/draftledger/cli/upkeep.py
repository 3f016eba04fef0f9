"""Sub-commands that write: record a harmless edit, empty the store of what nothing names."""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from draftledger.errors import ConfigError


def add(commands: Any) -> None:
    """Add `accept` and `gc`."""
    accept = commands.add_parser("accept", help="record that an edit of a stage's code changes no result")
    accept.add_argument("stage", help="name of the rule, such as adapter")
    accept.add_argument("--old", required=True, help="the digest that made the results, as a dry-run shows it")
    accept.add_argument("--new", required=True, help="today's digest, as a dry-run shows it")
    accept.add_argument("--reason", required=True)
    accept.set_defaults(run=_accept)
    gc = commands.add_parser("gc", help="drop from the store what no results name any more")
    gc.add_argument("--root", type=Path, nargs="+", default=[Path("results")], help="folders of all results that stay")
    gc.add_argument("--store", type=Path, default=Path("results/store"))
    gc.add_argument("--days", type=float, default=30, help="keep unfinished jobs' checkpoints for so long (30)")
    gc.add_argument("--dry-run", action="store_true", help="only say what would be dropped")
    gc.set_defaults(run=_gc)


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


def _gc(options: argparse.Namespace) -> int:
    from draftledger.provenance.gc import garbage
    from draftledger.provenance.store import Store

    found = garbage(options.root, Store(options.store), days=options.days)
    if not options.dry_run:
        found.drop()
    draws = f" ({found.draws} draws, which cannot be made again)" if found.draws else ""
    print(
        f"gc: {len(found.actions)} recipes{draws}, {len(found.blobs)} blobs, {len(found.partial)} unfinished jobs "
        f"{'would be' if options.dry_run else 'were'} dropped, {found.bytes / 1e6:.1f} MB"
    )
    return 0
