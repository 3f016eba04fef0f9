"""Decode prompts with an arm into rows, and check every token on the way."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from draftledger.decoding.arms import Arm, load_arm, run_arm
from draftledger.decoding.loop import Limits, Round
from draftledger.errors import ConfigError, CorruptError
from draftledger.measurement.exactness import (
    ExactnessError,
    Redraft,
    adversary,
    check_answer,
    check_sampled,
    require_exact,
)
from draftledger.measurement.margins import Position
from draftledger.measurement.prompts import Prompt, load_prompts
from draftledger.measurement.rows import POSITIONS, ROUNDS, answers, position_rows, round_row
from draftledger.models.load import Target
from draftledger.provenance.job import Job
from draftledger.provenance.tables import with_counts

# So many rounds of a job's first answer are decoded twice.
CONTROL_ROUNDS = 9


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


def known_answers(job: Job) -> dict[tuple[str, int], tuple[int, ...]] | None:
    """Return the autoregressive arm's answers by prompt and noise stream, or null when this job makes them.

    A greedy answer is decoded under one stream only and stands for all of them.
    """
    found = job.many("decode/ar/shared/rounds.parquet")
    if not found:
        return None
    said = answers(pq.read_table(found[0]))
    greedy = {prompt: tokens for (prompt, _), tokens in said.items()}
    streams = job.spec["decode"]["noise"]
    return {(prompt, noise): said.get((prompt, noise), greedy[prompt]) for prompt in greedy for noise in streams}


@dataclass(frozen=True, slots=True)
class _Bench:
    """What every answer of one job shares."""

    target: Target
    arm: Arm
    spec: dict[str, Any]
    known: dict[tuple[str, int], tuple[int, ...]] | None

    def said(self, question: Question, noise: int) -> tuple[int, ...] | None:
        """Return what the autoregressive arm answered, or null when this job makes those answers."""
        return self.known[question.prompt.id, noise] if self.known else None

    def run(self, question: Question, noise: int) -> Iterator[Round]:
        """Yield the rounds of one answer."""
        limits, answer = limits_of(self.spec, self.target), self.said(question, noise)
        return run_arm(self.target.model, self.arm, question.ids, limits=limits, noise=noise, answer=answer)


def decode_prompts(job: Job, target: Target, questions: list[Question]) -> tuple[pa.Table, pa.Table]:
    """Decode every prompt under every noise stream and return the rounds and positions tables; counts close.

    Raises ExactnessError at the first emitted token that is not the target's own, in `exact` mode at the first one
    that is not the autoregressive arm's, and when the first answer decoded again has other rounds.
    """
    spec = job.spec["decode"]
    if spec.get("exact") and target.dtype != "float32":
        raise ConfigError(f"decode.exact: needs float32; in {target.dtype} most rows are near-ties. Leave exact out")
    adapter = next(iter(job.many("adapter.safetensors")), None)
    arm = load_arm(job.spec["arm"], job.spec["settings"], model=target.model, adapter=adapter, decoding=spec)
    bench = _Bench(target, arm, spec, known_answers(job))
    streams = spec["noise"] if arm.noisy else spec["noise"][:1]
    rounds, positions = [], []
    work = [(question, noise) for question in questions for noise in streams]
    for question, noise in tqdm(work, desc=arm.name, unit="answer", mininterval=10):
        who = {name: job.spec.get(name) for name in ("arm", "seed", "launch")}
        made = _answer(bench, question, noise, control=not rounds)
        rounds += [{**who, **row} for row in made[0]]
        positions += [{**who, **row} for row in made[1]]
    counts = _counts(bench, questions, positions)
    if len(answers(pa.Table.from_pylist(rounds, schema=ROUNDS))) != len(work):
        raise CorruptError(f"arm {arm.name}: {len(work)} answers were due, fewer were decoded; report it")
    return (
        with_counts(pa.Table.from_pylist(rounds, schema=ROUNDS), {"answers": len(work)}),
        with_counts(pa.Table.from_pylist(positions, schema=POSITIONS), counts),
    )


def _answer(
    bench: _Bench, question: Question, noise: int, *, control: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    prompt, allowed, greedy = question.prompt, bench.spec["allowed_ulp"], bench.arm.sampling is None
    made, where = list(bench.run(question, noise)), f"arm {bench.arm.name}, prompt {prompt.id}"
    if control:
        _require_same(made, bench.run(question, noise), where=where)
    checked = _checked(bench, question, noise, made)
    require_exact(checked, allowed=allowed, where=where)
    who = {"prompt": prompt.id, "category": prompt.category, "noise": noise}
    said = bench.said(question, noise) if greedy else None
    found = list(position_rows(checked, ar=said, allowed=allowed))
    apart = next((row["position"] for row in found if row["differs_from_ar"]), None)
    if apart is not None and bench.arm.exact:
        raise ExactnessError(f"{where}, position {apart}: not the token of arm `ar`, though decode.exact; report it")
    return [{**who, **round_row(result)} for result in made], [{**who, **row} for row in found]


def _checked(bench: _Bench, question: Question, noise: int, made: list[Round]) -> list[Position]:
    # In float32 a row differs by less than the allowance at any width; bfloat16 is read at the verified one.
    model, wide = bench.target.model, bench.target.dtype == "bfloat16"
    if bench.arm.sampling is None:
        drafts = [result.draft for result in made] if wide else None
        return check_answer(model, question.ids, [result.committed for result in made], drafts=drafts)
    sampling = bench.arm.sampling.of_answer(question.ids, noise=noise)
    again = partial(bench.arm.drafter, prompt=question.ids, noise=noise, answer=bench.said(question, noise))
    redraft = Redraft(again, bench.arm.taps, bench.arm.k)
    allowed = bench.spec["allowed_ulp"]
    return check_sampled(model, question.ids, made, sampling=sampling, allowed=allowed, wide=wide, redraft=redraft)


def _require_same(made: list[Round], again: Iterator[Round], *, where: str) -> None:
    """Hold the first rounds of an answer to those of the same arm decoded once more."""
    for result, repeat in zip(made[:CONTROL_ROUNDS], again, strict=False):
        if result != repeat:
            raise ExactnessError(f"{where}, round {result.index}: decoded again it differs; nothing here can be timed")


def _counts(bench: _Bench, questions: list[Question], positions: list[dict[str, Any]]) -> dict[str, int]:
    """Count positions, and what an adversary's runner-ups met on the first prompts: forced = caught + ties."""
    spec, sampling = bench.spec, bench.arm.sampling
    powers = [
        adversary(
            bench.target.model,
            question.ids,
            tokens=spec["new_tokens"],
            allowed=spec["allowed_ulp"],
            seed=place,
            sampling=sampling and sampling.of_answer(question.ids, noise=spec["noise"][0]),
        )
        for place, question in enumerate(questions[: spec["adversary_prompts"]])
    ]
    total = {name: sum(asdict(power)[name] for power in powers) for name in ("forced", "caught", "ties")}
    return {"positions": len(positions), **{f"adversary_{name}": number for name, number in total.items()}}
