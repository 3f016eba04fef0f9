"""One timing session: all arms interleaved on every prompt, their tokens held to what decode recorded."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import mlx.core as mx
import pyarrow as pa
import pyarrow.parquet as pq
from mlx_lm.generate import generation_stream
from tqdm import tqdm

from draftledger.decoding.arms import Arm, load_arm, run_arm
from draftledger.decoding.clock import StageClock
from draftledger.decoding.loop import Limits
from draftledger.drafters.base import DraftContext, Drafter, build
from draftledger.errors import CorruptError
from draftledger.measurement.decoding import Question, known_answers, limits_of
from draftledger.measurement.rows import answers
from draftledger.measurement.schedule import order
from draftledger.measurement.telemetry import telemetry
from draftledger.models.load import Target
from draftledger.models.state import TargetState
from draftledger.provenance.job import Job
from draftledger.provenance.tables import with_counts
from draftledger.rng import key_of

TIMING = pa.schema(
    [(name, pa.int32()) for name in ("session", "seed", "launch")]
    + [(name, pa.string()) for name in ("arm", "prompt", "category")]
    + [(name, pa.int32()) for name in ("noise", "repeat", "order")]
    + [("mode", pa.string())]
    + [(name, pa.int32()) for name in ("prompt_tokens", "new_tokens", "rounds")]
    + [
        (name, pa.float64())
        for name in ("prefill_s", "ttft_s", "decode_s", "total_s", "draft_s", "verify_s", "commit_s")
    ]
    + [("peak_bytes", pa.int64())]
    + [(name, pa.float64()) for name in ("load1", "cpu_mhz", "temperature_c")]
)

COST = pa.schema([("kind", pa.string()), ("width", pa.int32()), ("milliseconds", pa.float64())])

WARM_TOKENS = 24
COST_REPEATS = 5


def load_arms(job: Job, target: Target) -> list[Arm]:
    """Load every timed arm; a seeded arm's adapter lies under its drafter's name."""
    adapters = {path.parent.parent.name: path for path in job.many("adapter.safetensors")}
    return [
        load_arm(
            name,
            settings,
            model=target.model,
            adapter=adapters.get(settings.get("drafter", {}).get("name")),
            decoding=job.spec["decode"],
        )
        for name, settings in job.spec["arms"].items()
    ]


def time_session(job: Job, target: Target, questions: list[Question], arms: list[Arm]) -> pa.Table:
    """Warm every arm up, then time all arms on each prompt in the order of a balanced square.

    Rows of mode "plain" have no barrier inside a round and are the only ones for speed; mode "staged" waits for
    each stage. Raises CorruptError when an answer differs from the one decode recorded.
    """
    spec, known = job.spec, known_answers(job) or {}
    recorded = _recorded(job)
    timer = _Timer(job, target, known, recorded)
    for arm in arms:
        timer.warm(arm, questions[0])
    modes = ["plain"] * spec["timing"]["repeats"] + ["staged"] * bool(spec["timing"]["staged_prompts"])
    plan = [
        (repeat, mode, place, question)
        for repeat, mode in enumerate(modes)
        for place, question in enumerate(
            questions[: spec["timing"]["staged_prompts"]] if mode == "staged" else questions
        )
    ]
    rows = []
    names = {arm.name: arm for arm in arms}
    for repeat, mode, place, question in tqdm(plan, desc="timing", unit="prompt", mininterval=10):
        start = _first_row(spec, len(modes)) + repeat
        turn = order(place, start, sorted(names), spec["timing"]["seed"])
        rows += [timer.row(names[name], question, mode=mode, repeat=repeat, turn=i) for i, name in enumerate(turn)]
    return with_counts(pa.Table.from_pylist(rows, schema=TIMING), {"answers": len(plan) * len(arms)})


def _first_row(spec: dict[str, Any], modes: int) -> int:
    """Return a session's first row of the square: each seed and launch has its own, and sessions follow on."""
    own = key_of(spec["timing"]["seed"], f"order/{spec['seed']}/{spec['launch']}", 0) % len(spec["arms"])
    return own + (spec["session"] - 1) * modes


def _recorded(job: Job) -> dict[tuple[str, str, int], tuple[int, ...]]:
    found = {}
    for path in job.many("rounds.parquet"):
        table = pq.read_table(path)
        arm = table["arm"][0].as_py()
        found |= {(arm, *who): tokens for who, tokens in answers(table).items()}
    return found


def _settle_device() -> None:
    """Wait for what the answer before left in flight: our loop and mlx-lm's both queue one forward ahead."""
    mx.synchronize()
    mx.synchronize(generation_stream)


class _Timer:
    """Times single answers of one job."""

    def __init__(self, job: Job, target: Target, known: dict[Any, Any], recorded: dict[Any, tuple[int, ...]]) -> None:
        self.job, self.target, self.known, self.recorded = job, target, known, recorded
        self.limits = limits_of(job.spec["decode"], target)

    def warm(self, arm: Arm, question: Question) -> None:
        """Run a few tokens, so that no arm pays for first use."""
        limits = Limits(min(WARM_TOKENS, self.limits.new_tokens), self.limits.eos_ids)
        list(self._rounds(arm, question, noise=self.job.spec["decode"]["noise"][0], limits=limits, clock=None))

    def row(self, arm: Arm, question: Question, *, mode: str, repeat: int, turn: int) -> dict[str, Any]:
        """Time one answer and check its tokens."""
        streams = self.job.spec["decode"]["noise"]
        noise = streams[repeat % len(streams)] if arm.noisy else streams[0]
        clock = StageClock() if mode == "staged" else None
        _settle_device()
        mx.reset_peak_memory()
        start = time.perf_counter()
        stamps, made = [], []
        for result in self._rounds(arm, question, noise=noise, limits=self.limits, clock=clock):
            stamps.append(time.perf_counter() - start)
            made.append(result)
        tokens = tuple(token for result in made for token in result.committed)
        if self.recorded.get((arm.name, question.prompt.id, noise)) != tokens:
            raise CorruptError(
                f"timing: arm {arm.name} on {question.prompt.id} gave other tokens than decode; report it"
            )
        return {
            **{name: self.job.spec[name] for name in ("session", "seed", "launch")},
            "arm": arm.name,
            "prompt": question.prompt.id,
            "category": question.prompt.category,
            **{"noise": noise, "repeat": repeat, "order": turn, "mode": mode},
            "prompt_tokens": len(question.ids),
            "new_tokens": len(tokens),
            "rounds": len(made) - 1,
            **{"prefill_s": stamps[0], "ttft_s": stamps[0], "decode_s": stamps[-1] - stamps[0], "total_s": stamps[-1]},
            **_stages(clock),
            "peak_bytes": mx.get_peak_memory(),
            **telemetry(),
        }

    def _rounds(self, arm: Arm, question: Question, *, noise: int, limits: Limits, clock: Any) -> Any:
        answer = self.known.get((question.prompt.id, noise))
        return run_arm(self.target.model, arm, question.ids, limits=limits, noise=noise, answer=answer, clock=clock)


def _stages(clock: StageClock | None) -> dict[str, float | None]:
    """Return seconds by stage: null for a stage the arm does not have, zero for one that this answer did not reach."""
    seconds = clock.seconds if clock else {}
    absent = 0.0 if "draft" in seconds else None
    return {f"{stage}_s": seconds.get(stage, absent) for stage in ("draft", "verify", "commit")}


def cost_table(target: Target, questions: list[Question], arms: list[Arm]) -> pa.Table:
    """Measure median milliseconds by width: isolated verify blocks, and a whole draft of the first arm with weights.

    A draft's width counts its anchor: it proposes one token less.
    """
    prompt = questions[0].ids
    drafting = next((arm for arm in arms if arm.adapter), None)
    state = TargetState(target.model, taps=drafting.adapter.taps if drafting and drafting.adapter else ())
    _settle_device()
    mx.eval(state.prefill(mx.array(prompt, dtype=mx.int32)))
    drafter = build(DraftContext(drafting.settings, state, tuple(prompt), 0, drafting.adapter)) if drafting else None
    if drafter:
        drafter.append_context(prompt, state.take_taps())
    whole = drafter.block if drafter else 0
    offered = [arm.settings["k"] or whole for arm in arms if "k" in arm.settings]
    widths = range(1, max(offered, default=0) + 3)
    rows = [("verify", width, _verify_ms(state, width)) for width in widths]
    rows += [("draft", width, _draft_ms(drafter, width)) for width in widths if drafter and 1 < width <= whole + 1]
    names = ("kind", "width", "milliseconds")
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=COST)
    return with_counts(table, {"widths": len(rows)})


def _verify_ms(state: TargetState, width: int) -> float:
    ids = mx.ones((width,), dtype=mx.int32)

    def run() -> None:
        mx.eval(state.run_block(ids))

    return _median_ms(run, state.rollback)


def _draft_ms(drafter: Drafter, width: int) -> float:
    anchor = mx.ones((1,), dtype=mx.int32)
    return _median_ms(lambda: mx.eval(drafter.propose(anchor, width - 1, step=0).tokens))


def _median_ms(run: Callable[[], None], undo: Callable[[], None] = lambda: None) -> float:
    seconds = []
    for _ in range(COST_REPEATS + 1):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
        undo()
    return 1000 * median(seconds[1:])
