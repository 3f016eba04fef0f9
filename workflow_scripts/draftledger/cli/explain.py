"""Sub-commands that explain numbers: trace, diff."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """Add `trace` and `diff`."""
    trace = commands.add_parser("trace", help="show the way from a number, or an artefact, back to its roots")
    trace.add_argument(
        "what", metavar="ROW|METRIC|PATH", help="number of a summary row, a metric, or an artefact's path"
    )
    for name in ("arm", "baseline", "scope"):
        trace.add_argument(f"--{name}")
    for name in ("slot", "seed"):
        trace.add_argument(f"--{name}", type=int)
    trace.add_argument("--root", type=Path, default=Path("results"), help="folder of the results, or a release")
    trace.add_argument("--svg", type=Path, metavar="FILE", help="also write it as a picture")
    trace.add_argument("--json", action="store_true", help="print it as JSON")
    trace.set_defaults(run=_trace)
    diff = commands.add_parser("diff", help="say what differs between two sets of results, and which numbers moved")
    diff.add_argument("first", type=Path, help="folder of the results, or a release")
    diff.add_argument("second", type=Path)
    diff.add_argument("--json", action="store_true", help="print everything as JSON")
    diff.set_defaults(run=_diff)


def _trace(options: argparse.Namespace) -> int:
    from rich.console import Console

    from draftledger.figures.lineage import draw
    from draftledger.figures.tree import record, terminal_tree
    from draftledger.provenance.atomic import write_bytes
    from draftledger.provenance.graph import read_graph
    from draftledger.provenance.numbers import choose, name, read_numbers
    from draftledger.provenance.packed import open_results
    from draftledger.provenance.trace import gaps, trace_artefact, trace_number

    files = open_results(options.root)
    graph = read_graph(files)
    if options.what in graph.artefacts:
        row, title, root = None, options.what, trace_artefact(graph, options.what)
    else:
        wanted = {key: getattr(options, key) for key in ("arm", "baseline", "scope", "slot")}
        row = choose(read_numbers(files), options.what, {k: v for k, v in wanted.items() if v is not None})
        title, root = name(row), trace_number(graph, row, seed=options.seed)
    if options.svg:
        write_bytes(options.svg, draw(root, title=title).encode())
    if options.json:
        print(json.dumps(record(root, row), indent=1))
    else:
        Console().print(terminal_tree(root, title=title))
    for gap in gaps(root):
        print(f"draftledger: gap: {gap}", file=sys.stderr)
    return 1 if gaps(root) else 0


def _diff(options: argparse.Namespace) -> int:
    from draftledger.figures.differences import told
    from draftledger.provenance.diff import compare
    from draftledger.provenance.graph import read_graph
    from draftledger.provenance.moves import moves
    from draftledger.provenance.numbers import read_numbers
    from draftledger.provenance.packed import open_results

    files = [open_results(path) for path in (options.first, options.second)]
    first, second = (read_graph(each) for each in files)
    differences = compare(first, second)
    moved = moves((first, second), (read_numbers(files[0]), read_numbers(files[1])), differences)
    if options.json:
        record = {"artefacts": [asdict(each) for each in differences], "numbers": [asdict(each) for each in moved]}
        print(json.dumps({"schema": 1, **record}, indent=1))
    else:
        print("\n".join(told(differences, moved)))
    return 1 if differences else 0
