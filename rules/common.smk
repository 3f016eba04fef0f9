# Every Python helper of the rules: the plan of this configuration, and how a stage is called.
import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

HOME = Path(workflow.basedir)
SCRIPTS = HOME / "workflow_scripts"
if str(SCRIPTS) not in sys.path:
    sys.path.insert(0, str(SCRIPTS))

from draftledger.config import check_config
from draftledger.errors import DraftledgerError
from draftledger.jobs import figures, jobs, ledgered, released
from draftledger.plan import Plan
from draftledger.provenance.checkout import checkout
from draftledger.provenance.digest import canonical_json, digest, file_digest
from draftledger.provenance.outlook import status

try:
    check_config(config, HOME / "config" / "config.schema.yaml")
    PLAN = Plan(config, HOME)
except DraftledgerError as error:
    raise WorkflowError(str(error))

R = PLAN.root
STORE = "results/store"
# A compute job takes the threads it computes with, so that two of them never fight for a core.
THREADS = workflow.cores if config["runtime"]["threads"] == "auto" else config["runtime"]["threads"]
TARGET_SOURCES = [f"{R}/environment.json", f"{R}/corpus/documents.parquet"] * (config["target"]["kind"] == "tiny")
BASE = [*PLAN.model(), f"{R}/environment.json"]
WINDOWS = [f"{R}/windows/train.parquet", f"{R}/windows/validation.parquet"]
# Windows are cut from the target's answers where there are any, else from the documents.
SPOKEN = PLAN.answers() or [f"{R}/corpus/documents.parquet"]
COSTS = [path.replace(".parquet", ".cost.parquet") for path in PLAN.sessions()]
HISTORIES = PLAN.histories()
POSITIONS = [path.replace("rounds.parquet", "positions.parquet") for path in PLAN.all_rounds()]
ROWS = [*PLAN.all_rounds(), *POSITIONS, *PLAN.sessions()]
FIGURES = figures(PLAN)
ENV = HOME / "envs" / "cpu.yaml"
PROMPTS = config["decode"]["prompts"]
TEMPLATES = config.get("continuations", {}).get("templates", "config/questions/default.yaml")
DECISION = "config/decision.yaml"
# What a release adds from the checkout: rules, prompts, locks, schemas and the texts of licences.
CHECKOUT = (
    "LICENSE",
    "CITATION.cff",
    "config/accepted.json",
    "config/licences/*.txt",
    "docs/schemas/*.json",
    "envs/*.txt",
)
AROUND = [os.path.relpath(path) for name in CHECKOUT for path in sorted(HOME.glob(name))] + [DECISION, PROMPTS]
AROUND += [TEMPLATES] * bool(PLAN.answers())

# One command for every stage: the script first, then its inputs; `python` is the one that runs Snakemake.
shell.prefix(f'set -euo pipefail; export PATH="{Path(sys.executable).parent}:$PATH"; ')
CALL = (
    f"python {{input.script:q}} --root {R} --store {STORE} --spec {{params.spec:q}} --code {{params.code}}"
    " --input {input:q} --output {output:q} 2>&1 | tee {log:q}"
)


report: "report/workflow.rst"


wildcard_constraints:
    arm="[a-z][a-z0-9_]*",
    drafter="[a-z][a-z0-9_]*",
    split="train|validation",
    shard=r"\d{4}",
    job=r"\d{4}",
    seed=r"\d+",
    launch=r"\d+",
    session=r"\d+",
    draw=r"shared|seed\d+-launch\d+",


def with_manifest(path):
    """Return the manifest that stands for a payload: small, and equal when the payload is."""
    return f"{path}.manifest.json"


def script(stage):
    """Return a stage's script; its code counts by digest, not by time stamp."""
    return ancient(os.path.relpath(SCRIPTS / f"{stage}.py"))


def bytes_of(path):
    """Return the digest of a versioned file: as a parameter it counts where a fresh clone's time stamp must not."""
    return file_digest(Path(path)) if Path(path).is_file() else None


def payloads(*paths):
    """Return payloads as inputs whose time stamps do not count; their manifests do."""
    return [ancient(path) for path in paths]


def manifests(*paths):
    """Return the manifests of payloads, as inputs that do count."""
    return [with_manifest(path) for path in paths]


def made(*paths):
    """Return payloads followed by their manifests, as a rule's outputs."""
    return [*paths, *manifests(*paths)]


def spec(stage, **where):
    """Return the settings a stage depends on, as one canonical JSON string."""
    return canonical_json(PLAN.spec(stage, **where)).decode()


def decode_sources(wildcards):
    """Return what an arm's decoding reads beyond the target: its adapter, and the baseline's answers."""
    adapter = PLAN.arm_adapter(wildcards.arm, wildcards.draw)
    return adapter + ([] if wildcards.arm == "ar" else [PLAN.rounds("ar", "shared")])


def decode_payloads(wildcards):
    """Return the payloads of an arm's sources."""
    return payloads(*decode_sources(wildcards))


def decode_manifests(wildcards):
    """Return the manifests of an arm's sources."""
    return manifests(*decode_sources(wildcards))


def timing_sources(wildcards):
    """Return what a timing session reads beyond the target: all adapters of its draw, and the recorded answers."""
    rounds = [*PLAN.timed_rounds(wildcards.draw), PLAN.rounds("ar", "shared")]
    return PLAN.timed_adapters(wildcards.draw) + list(dict.fromkeys(rounds))


def timing_payloads(wildcards):
    """Return the payloads of a session's sources."""
    return payloads(*timing_sources(wildcards))


def timing_manifests(wildcards):
    """Return the manifests of a session's sources."""
    return manifests(*timing_sources(wildcards))


def adapter_sources(wildcards):
    """Return the local files of a published drafter; none when it comes from the hub."""
    return payloads(*PLAN.adapter_sources(wildcards.drafter))


def adapter_code(wildcards):
    """Return the digest of the code that trains a drafter's kind."""
    return PLAN.code("adapter", kinds=(config["drafters"][wildcards.drafter]["kind"],))


def decode_code(wildcards):
    """Return the digest of the code that decodes an arm's kind."""
    return PLAN.code("decode", kinds=(config["arms"][wildcards.arm]["kind"],))


print(status(list(jobs(PLAN)), root=R, store=Path(STORE)), file=sys.stderr)
