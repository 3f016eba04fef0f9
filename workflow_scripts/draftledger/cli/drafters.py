"""Sub-commands about a drafter's files: say what they are, write them as others publish theirs."""

import argparse
from pathlib import Path
from typing import Any

LAYOUTS = ("zlab", "deepspec", "speculators")


def add(commands: Any) -> None:
    """Add `recognise` and `export`."""
    recognise = commands.add_parser("recognise", help="say which packaging a drafter's files are, and their digest")
    recognise.add_argument("drafter", type=Path, help="checkpoint folder or safetensors file")
    recognise.set_defaults(run=_recognise)
    export = commands.add_parser("export", help="write a drafter in the layout of others")
    export.add_argument("drafter", type=Path, help="adapter.safetensors of a run, or a checkpoint folder")
    export.add_argument("folder", type=Path, help="where config.json and model.safetensors go")
    export.add_argument("--layout", choices=LAYOUTS, required=True)
    export.add_argument("--target", default="", help="name of the target, which speculators writes down")
    export.set_defaults(run=_export)


def _recognise(options: argparse.Namespace) -> int:
    from draftledger.drafters.formats.checkpoint import inspect
    from draftledger.models.sources import weights_sha256

    found = inspect(options.drafter)
    taps = ", ".join(map(str, found.config.target_layer_ids))
    print(f"{found.packaging.name}: {found.packaging.kind}, block {found.config.block_size}, taps {taps}")
    print(f"sha256: {weights_sha256(options.drafter)}")
    return 0


def _export(options: argparse.Namespace) -> int:
    from draftledger.drafters.formats.read import read
    from draftledger.drafters.formats.write import write_deepspec, write_speculators, write_zlab

    config, tensors = read(options.drafter)
    if options.layout == "speculators":
        write_speculators(options.folder, config, tensors, verifier=options.target)
    else:
        (write_zlab if options.layout == "zlab" else write_deepspec)(options.folder, config, tensors)
    return 0
