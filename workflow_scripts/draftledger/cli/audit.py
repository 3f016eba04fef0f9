"""The sub-command that holds results against today's settings, code and packages: audit."""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from draftledger.errors import ConfigError

if TYPE_CHECKING:
    from draftledger.plan import Plan
    from draftledger.provenance.audit import Audit, Judged
    from draftledger.provenance.repeats import Repeated


def add(commands: Any) -> None:
    """Add `audit`."""
    audit = commands.add_parser("audit", help="say which numbers still hold under today's settings, code and packages")
    audit.add_argument("--configfile", type=Path, nargs="+", default=[Path("config/config.yaml")])
    audit.add_argument("--store", type=Path, default=Path("results/store"))
    audit.add_argument("--json", action="store_true", help="print everything as JSON")
    audit.set_defaults(run=_audit)


def _audit(options: argparse.Namespace) -> int:
    from draftledger.jobs import jobs
    from draftledger.provenance.audit import audit
    from draftledger.provenance.code import accepted, in_force
    from draftledger.provenance.graph import Folder, homes, read_graph
    from draftledger.provenance.numbers import SUMMARY, read_numbers
    from draftledger.provenance.repeats import repeated
    from draftledger.provenance.store import Store

    plan = _plan(options.configfile)
    planned = list(jobs(plan))
    files = Folder(_folder(plan))
    graph = read_graph(files)
    numbers = read_numbers(files) if SUMMARY in graph.artefacts else []
    found = audit(planned, graph, numbers, root=plan.root)
    graphs = [read_graph(Folder(home)) for home in homes(Path("results"))]
    again = repeated(graphs, Store(options.store))
    edits = in_force(accepted(plan.home / "config" / "accepted.json"), {(job.rule, job.code) for job in planned})
    unexpected = [each for each in again if not each.expected]
    if options.json:
        more = {"accepted": edits, "repeated": [each.record() for each in again]}
        print(json.dumps({"schema": 1, **found.record(), **more}, indent=1))
    else:
        print("\n".join([*_told(found), *_more(edits, again, unexpected)]))
    held = all(each.state in ("ok", "absent") for each in (*found.artefacts, *found.numbers))
    return 0 if held and not unexpected else 1


def _plan(configfiles: Sequence[Path]) -> "Plan":
    from draftledger.config import check_config
    from draftledger.plan import Plan

    config: dict[str, Any] = {}
    for path in configfiles:
        try:
            _update(config, yaml.safe_load(path.read_text()) or {})
        except (OSError, yaml.YAMLError, AttributeError) as error:
            raise ConfigError(f"{path}: cannot be read ({' '.join(str(error).split())}); check --configfile") from None
    check_config(config, Path("config/config.schema.yaml"))
    return Plan(config, Path())


def _update(config: dict[str, Any], other: dict[str, Any]) -> None:
    """Lay one configuration over another, as Snakemake does with several files."""
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(config.get(key), dict):
            _update(config[key], value)
        else:
            config[key] = value


def _folder(plan: "Plan") -> Path:
    folder = Path(plan.root)
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no results of this configuration; run the workflow or name --configfile")
    return folder


def _told(found: "Audit") -> Iterator[str]:
    from draftledger.provenance.audit import counts

    for kind, judged in (("artefacts", found.artefacts), ("numbers", found.numbers)):
        yield f"{kind}: {', '.join(f'{number} {state}' for state, number in sorted(counts(judged).items()))}"
        yield from _grouped([each for each in judged if each.state not in ("ok", "absent")], whole=kind == "numbers")


def _grouped(judged: "Sequence[Judged]", *, whole: bool) -> Iterator[str]:
    """Yield one line for all that fail for one reason; artefacts that only follow from others are left out."""
    groups: dict[tuple[str, str], list[str]] = {}
    for each in judged:
        through = f"made from what is stale: {', '.join(each.through)}" if each.through and (whole or each.own) else ""
        if reason := "; ".join(filter(None, [*each.own, through])):
            groups.setdefault((each.state, reason), []).append(each.name)
    for (state, reason), names in groups.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"  {state}: {names[0]}{more}: {reason}"


def _more(edits: list[dict[str, Any]], again: "list[Repeated]", unexpected: "list[Repeated]") -> Iterator[str]:
    yield f"accepted edits in force: {len(edits)}"
    yield from (f"  {edit['stage']}: {edit.get('reason')}" for edit in edits)
    yield f"recipes with several contents: {len(again) - len(unexpected)} draws, as expected; {len(unexpected)} others"
    yield from (f"  {each.rule}: {each.name} has {each.contents} contents: {each.key}" for each in unexpected)
