"""Decode prompts with an arm into rows, and check every token on the way."""

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from draftledger.decoding.arms import Arm, load_arm, run_arm
from draftledger.decoding.loop import Limits
from draftledger.errors import ConfigError, CorruptError
from draftledger.measurement.exactness import adversary, check_answer, require_exact
from draftledger.measurement.prompts import Prompt, load_prompts
from draftledger.measurement.rows import POSITIONS, ROUNDS, answers, position_rows, round_row
from draftledger.models.load import Target
from draftledger.provenance.job import Job
from draftledger.provenance.tables import with_counts


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt and the token ids that the target is given for it."""

    prompt: Prompt
    ids: list[int]


def load_prompt_ids(job: Job, target: Target) -> list[Question]:
    """Load the prompts that the spec's decode block selects and render them for the target.

    Raises ConfigError for a prompt that leaves no room in the target's context.
    """
    spec = job.spec["decode"]
    chosen = load_prompts(
        job.input(spec["prompts"]),
        split=spec["split"],
        categories=spec["categories"],
        per_category=spec["per_category"],
    )
    questions = [Question(prompt, target.tokenizer.chat(prompt.text)) for prompt in chosen]
    for question in questions:
        if not 0 < len(question.ids) <= target.context_length - spec["new_tokens"]:
            raise ConfigError(
                f"{spec['prompts']}: prompt {question.prompt.id} has {len(question.ids)} tokens; with "
                f"{spec['new_tokens']} new ones the target's context of {target.context_length} is too short"
            )
    return questions


def limits_of(spec: dict[str, Any], target: Target) -> Limits:
    """Return when answers end under the spec's decode block."""
    return Limits(spec["new_tokens"], target.eos_ids)


def known_answers(job: Job) -> dict[str, tuple[int, ...]] | None:
    """Return the autoregressive arm's answers by prompt, or null when this job makes them."""
    found = job.many("decode/ar/shared/rounds.parquet")
    return {prompt: tokens for (prompt, _), tokens in answers(pq.read_table(found[0])).items()} if found else None


def decode_prompts(job: Job, target: Target, questions: list[Question]) -> tuple[pa.Table, pa.Table]:
    """Decode every prompt under every noise stream and return the rounds and positions tables; counts close.

    Raises ExactnessError at the first emitted token that is not the target's own.
    """
    spec = job.spec["decode"]
    adapters = job.many("adapter.safetensors")
    arm = load_arm(job.spec["arm"], job.spec["settings"], model=target.model, adapter=next(iter(adapters), None))
    known = known_answers(job)
    streams = spec["noise"] if arm.noisy else spec["noise"][:1]
    rounds, positions = [], []
    work = [(question, noise) for question in questions for noise in streams]
    for question, noise in tqdm(work, desc=arm.name, unit="answer", mininterval=10):
        who = {name: job.spec.get(name) for name in ("arm", "seed", "launch")}
        made = _answer(target, arm, question, noise=noise, spec=spec, known=known)
        rounds += [{**who, **row} for row in made[0]]
        positions += [{**who, **row} for row in made[1]]
    counts = _counts(target, questions, positions, spec)
    if len(answers(pa.Table.from_pylist(rounds, schema=ROUNDS))) != len(work):
        raise CorruptError(f"arm {arm.name}: {len(work)} answers were due, fewer were decoded; report it")
    return (
        with_counts(pa.Table.from_pylist(rounds, schema=ROUNDS), {"answers": len(work)}),
        with_counts(pa.Table.from_pylist(positions, schema=POSITIONS), counts),
    )


def _answer(
    target: Target,
    arm: Arm,
    question: Question,
    *,
    noise: int,
    spec: dict[str, Any],
    known: dict[str, tuple[int, ...]] | None,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    prompt, answer = question.prompt, known[question.prompt.id] if known else None
    limits = limits_of(spec, target)
    made = list(run_arm(target.model, arm, question.ids, limits=limits, noise=noise, answer=answer))
    # In float32 a row differs by less than the allowance at any width; bfloat16 is read at the verified one.
    drafts = [result.draft for result in made] if target.dtype == "bfloat16" else None
    checked = check_answer(target.model, question.ids, [result.committed for result in made], drafts=drafts)
    require_exact(checked, allowed=spec["allowed_ulp"], where=f"arm {arm.name}, prompt {prompt.id}")
    who = {"prompt": prompt.id, "category": prompt.category, "noise": noise}
    rows = [{**who, **round_row(result)} for result in made]
    return rows, [{**who, **row} for row in position_rows(checked, ar=answer, allowed=spec["allowed_ulp"])]


def _counts(
    target: Target, questions: list[Question], positions: list[dict[str, Any]], spec: dict[str, Any]
) -> dict[str, int]:
    """Count positions, and what an adversary's runner-ups met on the first prompts: forced = caught + ties."""
    powers = [
        adversary(target.model, question.ids, tokens=spec["new_tokens"], allowed=spec["allowed_ulp"], seed=place)
        for place, question in enumerate(questions[: spec["adversary_prompts"]])
    ]
    total = {name: sum(asdict(power)[name] for power in powers) for name in ("forced", "caught", "ties")}
    return {"positions": len(positions), **{f"adversary_{name}": number for name, number in total.items()}}
