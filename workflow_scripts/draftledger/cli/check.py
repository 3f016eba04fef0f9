"""Sub-commands that check results by themselves: verify, replay."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from draftledger.provenance.findings import Verified


def add(commands: Any) -> None:
    """Add `verify` and `replay`."""
    verify = commands.add_parser("verify", help="re-hash every artefact and name those that are not what they were")
    verify.add_argument("release", type=Path, nargs="?", help="check this release, without unpacking it")
    verify.add_argument("--root", type=Path, default=Path("results"), help="folder of the results")
    verify.add_argument("--store", type=Path, nargs="?", const=Path("results/store"), help="re-hash this store instead")
    verify.add_argument("--expect", metavar="DIGEST", help="the published root digest")
    verify.add_argument("--json", action="store_true", help="print everything as JSON")
    verify.set_defaults(run=_verify)
    replay = commands.add_parser("replay", help="compute summary and figures again from the rows, and compare")
    replay.add_argument("--root", type=Path, default=Path("results"), help="folder of the results")
    replay.add_argument("--bytes", action="store_true", help="demand equal bytes too, as in the locked environment")
    replay.set_defaults(run=_replay)


def _verify(options: argparse.Namespace) -> int:
    found = _found(options)
    if options.json:
        print(json.dumps(found.record(), indent=1))
    else:
        for finding in found.findings:
            if finding.state != "ok":
                print(f"{finding.state}: {finding.path}: {finding.reason}")
        for name in found.unchecked:
            print(f"not compared: {name}: is not here")
        told = ", ".join(f"{number} {state}" for state, number in found.counts.items())
        print(f"verify: {told or 'nothing to check'}", file=sys.stderr)
    return 1 if found.faults else 0


def _found(options: argparse.Namespace) -> "Verified":
    from draftledger.provenance.archive import verify_archive
    from draftledger.provenance.findings import Verified, archived
    from draftledger.provenance.store_check import verify_store
    from draftledger.provenance.verify import verify

    if options.store:
        return verify_store(options.store)
    where = options.release or options.root
    if where.is_dir() or options.release is None:
        return verify(where, expect=options.expect)
    return Verified(archived(verify_archive(where, expect=options.expect)))


def _replay(options: argparse.Namespace) -> int:
    from draftledger.provenance.graph import one_home
    from draftledger.provenance.replay import replay

    found = replay(one_home(options.root))
    for each in found:
        print(f"{each.outcome}: {each.name}{each.reason and f': {each.reason}'}")
    wanted = ("same bytes",) if options.bytes else ("same bytes", "same content")
    return 0 if all(each.outcome in wanted for each in found if each.number or options.bytes) else 1
