"""The jobs of a configuration as plain records, as the rules make them: for looking at results without Snakemake."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftledger.plan import Plan
from draftledger.provenance.packing import wanted

DECISION = "config/decision.yaml"
FIGURES = ("speedup", "survival", "categories", "cycle", "cost", "learning")


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One job: its rule, the settings and code it depends on, and the payloads that it reads and writes."""

    rule: str
    spec: dict[str, Any]
    code: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def figures(plan: Plan) -> list[str]:
    """Return the pictures of the report."""
    return [f"{plan.root}/figures/{name}.svg" for name in FIGURES]


def ledgered(plan: Plan) -> list[str]:
    """Return every payload of a whole run, the ledger included."""
    return [*plan.evidence(), *figures(plan), f"{plan.root}/report.html", f"{plan.root}/SHA256SUMS"]


def released(plan: Plan) -> list[str]:
    """Return the payloads that a release reads: those that its level packs, and the corpus for its licences."""
    roles = [path.removeprefix(f"{plan.root}/") for path in ledgered(plan)]
    packed = [f"{plan.root}/{role}" for role in wanted(roles, plan.release["level"])]
    return list(dict.fromkeys([*packed, *plan.corpus()]))


def jobs(plan: Plan) -> Iterator[PlannedJob]:
    """Yield every job of a configuration, each after those whose outputs it reads."""
    yield from _sources(plan)
    yield from _training(plan)
    yield from _evaluation(plan)
    yield from _findings(plan)


def _job(
    plan: Plan, rule: str, *, reads: Iterable[str], makes: Iterable[str], kinds: tuple[str, ...] = (), **where: str
) -> PlannedJob:
    return PlannedJob(rule, plan.spec(rule, **where), plan.code(rule, kinds=kinds), tuple(reads), tuple(makes))


def _environment(plan: Plan) -> str:
    return f"{plan.root}/environment.json"


def _base(plan: Plan) -> list[str]:
    return [*plan.model(), _environment(plan)]


def _sources(plan: Plan) -> Iterator[PlannedJob]:
    yield _job(plan, "environment", reads=(), makes=[_environment(plan)])
    if plan.corpus():
        yield _job(plan, "corpus", reads=plan.sources("corpus"), makes=plan.corpus())
    own = [_environment(plan), *plan.corpus()] if plan.config["target"]["kind"] == "tiny" else []
    yield _job(plan, "model", reads=[*own, *plan.sources("target")], makes=plan.model())
    if plan.windows():
        tokenizer = [path for path in plan.model() if "tokenizer" in path]
        for number, path in enumerate(plan.answers()):
            read = [*_base(plan), *plan.corpus(), plan.config["continuations"]["templates"]]
            yield _job(plan, "continuations", reads=read, makes=[path], job=f"{number:04d}")
        read = [*(plan.answers() or plan.corpus()), *tokenizer, plan.config["decode"]["prompts"]]
        yield _job(plan, "windows", reads=read, makes=plan.windows())


def _training(plan: Plan) -> Iterator[PlannedJob]:
    shards = {split: plan.shards(split) for split in ("train", "validation")}
    windows = {split: f"{plan.root}/windows/{split}.parquet" for split in shards}
    for split, paths in shards.items():
        for path in paths:
            made = [path, path.replace(".safetensors", ".bounds.parquet")]
            number = Path(path).stem.removeprefix(f"{split}-")
            yield _job(plan, "teacher", reads=[*_base(plan), windows[split]], makes=made, split=split, shard=number)
    read = [*_base(plan), *windows.values(), *shards["train"], *shards["validation"]]
    for drafter in sorted({name for arm in plan.config["arms"] if (name := plan.drafter(arm))}):
        kind = plan.config["drafters"][drafter]["kind"]
        if plan.published(drafter):
            sources = plan.adapter_sources(drafter)
            yield _job(plan, "published", reads=sources, makes=[plan.adapter(drafter, "")], drafter=drafter)
            continue
        for draw in plan.draws:
            path = plan.adapter(drafter, draw)
            made = [path, path.replace("adapter.safetensors", "history.parquet")]
            seed, launch = draw.removeprefix("seed").split("-launch")
            where = {"drafter": drafter, "seed": seed, "launch": launch}
            yield _job(plan, "adapter", reads=read, makes=made, kinds=(kind,), **where)


def _evaluation(plan: Plan) -> Iterator[PlannedJob]:
    prompts, answers = plan.config["decode"]["prompts"], plan.rounds("ar", "shared")
    # The baseline comes first: every other arm reads its answers.
    for arm in sorted(plan.config["arms"], key=lambda arm: arm != "ar"):
        for draw in plan.arm_draws(arm):
            rounds = plan.rounds(arm, draw)
            read = [*_base(plan), *plan.arm_adapter(arm, draw), *([answers] if arm != "ar" else []), prompts]
            made = [rounds, rounds.replace("rounds.parquet", "positions.parquet")]
            kind = plan.config["arms"][arm]["kind"]
            yield _job(plan, "decode", reads=read, makes=made, kinds=(kind,), arm=arm, draw=draw)
    for path in plan.sessions():
        draw, session = Path(path).parent.name, Path(path).stem.removeprefix("session")
        read = [*_base(plan), *plan.timed_adapters(draw), *plan.timed_rounds(draw), answers, prompts]
        made = [path, path.replace(".parquet", ".cost.parquet")]
        where = {"draw": draw, "session": session}
        yield _job(plan, "timing", reads=dict.fromkeys(read), makes=made, kinds=plan.timed_kinds(), **where)


def _findings(plan: Plan) -> Iterator[PlannedJob]:
    root, rounds = plan.root, plan.all_rounds()
    positions = [path.replace("rounds.parquet", "positions.parquet") for path in rounds]
    costs = [path.replace(".parquet", ".cost.parquet") for path in plan.sessions()]
    summary = [f"{root}/summary.{suffix}" for suffix in ("parquet", "tsv", "html")]
    pictures, report = figures(plan), f"{root}/report.html"
    yield _job(plan, "summary", reads=[*rounds, *positions, *plan.sessions(), DECISION], makes=summary)
    yield _job(plan, "figures", reads=[summary[0], *costs, *plan.histories()], makes=pictures)
    yield _job(plan, "report", reads=[*plan.evidence(), *pictures], makes=[report])
    yield _job(plan, "ledger", reads=[*plan.evidence(), *pictures, report], makes=[f"{root}/SHA256SUMS"])
