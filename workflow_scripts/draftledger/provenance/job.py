"""What every workflow script shares: read the command line, build the recipe, fill the stage, say what happened."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftledger.errors import ConfigError, CorruptError, DraftledgerError
from draftledger.provenance.atomic import write_json
from draftledger.provenance.digest import content_digest
from draftledger.provenance.manifest import manifest_path, read_manifest, verified
from draftledger.provenance.natures import Nature
from draftledger.provenance.recipe import ENVIRONMENT, Input, Recipe
from draftledger.provenance.stage import Outcome, Stage, stage
from draftledger.provenance.store import Store

INTERRUPTED = 130  # what a shell reports for SIGINT

Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """What a stage's computation is given: settings, verified inputs by role, and folders to write to."""

    spec: dict[str, Any]
    inputs: dict[str, Path]
    environment: dict[str, Any] | None
    folder: Path
    partial: Path

    def input(self, role: str) -> Path:
        """Return the one input whose role ends with `role`; raise ConfigError when there is not exactly one."""
        found = self.many(role)
        if len(found) != 1:
            raise ConfigError(f"the stage needs one input {role} and has {len(found)}; check the rule's inputs")
        return found[0]

    def many(self, role: str) -> list[Path]:
        """Return every input whose role ends with `role`, in the order of the rule."""
        return [path for name, path in self.inputs.items() if name == role or name.endswith("/" + role)]

    def out(self, name: str) -> Path:
        """Return where the output of that file name is to be written."""
        return self.folder / name


def run_job(
    compute: Callable[[Job], Facts | None], *, nature: Nature = "repeatable", argv: Sequence[str] | None = None
) -> int:
    """Run one stage from its command line; return the exit code, with errors as one line on stderr.

    `compute` may return facts about this run (never about the payload); they go to the run record.
    """
    try:
        options = _options(argv)
        started = time.monotonic()
        facts: Facts = {}
        outcome = _run(options, lambda job: facts.update(compute(job) or {}), nature)
        _report(options, outcome, {**facts, "seconds": round(time.monotonic() - started, 3)})
        return 0
    except DraftledgerError as error:
        _complain(str(error))
    except OSError as error:
        _complain(f"{error.filename or 'a file'}: {error.strerror or error}; free space or fix access")
    except KeyboardInterrupt:
        _complain("interrupted; nothing is lost that was finished: run again to go on")
        return INTERRUPTED
    return 1


def _complain(message: str) -> None:
    print("draftledger: error:", " ".join(message.split()), file=sys.stderr)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="One stage of the workflow; Snakemake fills in the arguments.")
    parser.add_argument("--root", type=Path, required=True, help="folder of the experiment's results")
    parser.add_argument("--store", type=Path, required=True, help="folder of the content-addressed store")
    parser.add_argument("--spec", type=json.loads, required=True, help="the settings this stage depends on, as JSON")
    parser.add_argument("--code", required=True, help="digest of the code this stage runs")
    parser.add_argument("--input", type=Path, nargs="+", default=[], help="script first, then payloads and manifests")
    parser.add_argument("--output", type=Path, nargs="+", required=True, help="payloads and their manifests")
    return parser.parse_args(argv)


def _run(options: argparse.Namespace, compute: Callable[[Job], None], nature: Nature) -> Outcome:
    inputs = _roles(options)
    contents = {role: _content(path) for role, path in inputs.items()}
    environment = contents.pop(ENVIRONMENT, None)
    recipe = Recipe(
        rule=options.input[0].stem,
        spec=options.spec,
        code=options.code,
        environment=environment,
        inputs=tuple(Input(role, contents[role]) for role in sorted(contents)),
    )
    outputs = tuple(path for path in options.output if not path.name.endswith(".manifest.json"))

    def run(folder: Path, partial: Path) -> None:
        _check(inputs)
        facts = json.loads(inputs[ENVIRONMENT].read_text()) if environment else None
        compute(Job(options.spec, inputs, facts, folder, partial))

    refresh = os.environ.get("DRAFTLEDGER_STORE", "") == "refresh"
    return stage(Stage(recipe, outputs, nature), run, store=Store(options.store), refresh=refresh)


def _roles(options: argparse.Namespace) -> dict[str, Path]:
    payloads = [path for path in options.input[1:] if not path.name.endswith(".manifest.json")]
    roles = {_role(path, options.root): path for path in payloads}
    if len(roles) != len(payloads):
        raise ConfigError(f"{options.input[0].stem}: two inputs have the same role; this is a fault, report it")
    return roles


def _role(path: Path, root: Path) -> str:
    inside = path.resolve().is_relative_to(root.resolve())
    return path.resolve().relative_to(root.resolve()).as_posix() if inside else path.as_posix()


def _content(path: Path) -> str:
    return read_manifest(path).content if manifest_path(path).exists() else content_digest(path)


def _check(inputs: dict[str, Path]) -> None:
    for path in inputs.values():
        if manifest_path(path).exists():
            verified(path)
        elif not path.is_file():
            raise CorruptError(f"{path}: absent; restore it from version control")


def _report(options: argparse.Namespace, outcome: Outcome, facts: Facts) -> None:
    record = {"hit": outcome.hit, "finished": round(time.time()), "host": os.uname().nodename, **facts}
    for path in options.output:
        if not path.name.endswith(".manifest.json"):
            write_json(path.with_name(path.name + ".run.json"), record)
            word = "store hit" if outcome.hit else "computed"
            print(f"draftledger: {path}: {word} in {facts['seconds']:.1f} s", file=sys.stderr)
