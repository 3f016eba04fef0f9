"""The plan of a run: its artefacts, and the settings and code that each stage depends on."""

import sys
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from draftledger.artefacts import Artefacts
from draftledger.provenance.code import accepted, code_digest, resolve

# What decoding must know of a drafter beside its weights.
SHAPE = ("kind", "rank", "scale", "modules", "bits", "group_size", "shape")
# What tells which answers become windows; the rest of `continuations` decides the answers.
CHOOSING = ("shortest", "loop_ngram", "loops")
SOFTWARE = ("mlx", "mlx-lm", "mlx-cpu", "mlx-cuda-13", "mlx-metal", "ngsolve-openblas", "numpy", "tokenizers")


@dataclass(frozen=True)
class Plan(Artefacts):
    """What each artefact of a configuration is made from."""

    # --- what each is made from ----------------------------------------------------------------------------------

    def spec(self, stage: str, **where: Any) -> dict[str, Any]:
        """Return exactly the settings a stage depends on, as plain JSON types."""
        return getattr(self, f"_{stage}_spec")(**where)

    def _environment_spec(self) -> dict[str, Any]:
        return {"runtime": self.config["runtime"], "software": software()}

    def _corpus_spec(self) -> dict[str, Any]:
        return self.config.get("corpus", {})

    def _model_spec(self) -> dict[str, Any]:
        return _without(self.config["target"], "licence")

    def _continuations_spec(self, *, job: str) -> dict[str, Any]:
        settings = self.config.get("continuations", {})
        asked = {key: value for key, value in settings.items() if key not in CHOOSING}
        return {**asked, "job": int(job), "software": _versions("numpy", "tokenizers")}

    def _windows_spec(self) -> dict[str, Any]:
        settings = self.config.get("continuations", {})
        return {
            "windows": self.config.get("windows"),
            "prompts": self.config["decode"]["prompts"],
            "software": _versions("numpy", "tokenizers"),
        } | ({"answers": {key: settings[key] for key in CHOOSING}} if settings else {})

    def _teacher_spec(self, *, split: str, shard: str) -> dict[str, Any]:
        teacher = self.config["teacher"]
        return {
            "split": split,
            "shard": int(shard),
            "windows": teacher["shard_windows"],
            "top_k": teacher["top_k"],
            "dense": teacher["dense_windows"],
            "max_tail": teacher["max_tail"],
        }

    def _adapter_spec(self, *, drafter: str, seed: str, launch: str) -> dict[str, Any]:
        return {"drafter": self.config["drafters"][drafter], "seed": int(seed), "launch": int(launch)}

    def _published_spec(self, *, drafter: str) -> dict[str, Any]:
        settings = self.config["drafters"][drafter]
        return {**settings, "adapter": _without(settings["adapter"], "licence")}

    def _arm_spec(self, arm: str) -> dict[str, Any]:
        """Return an arm's settings as decoding needs them: what it is compared with is left to the summary."""
        settings = {key: value for key, value in self.config["arms"][arm].items() if key not in ("control", "twin_of")}
        if "drafter" in settings:
            drafter = self.config["drafters"][settings["drafter"]]
            settings |= {key: drafter[key] for key in ("noise_bound",) if key in drafter}
            settings["drafter"] = {"name": settings["drafter"]} | {key: drafter[key] for key in SHAPE if key in drafter}
        return settings

    def _decode_spec(self, *, arm: str, draw: str) -> dict[str, Any]:
        # The adversary tests the check, not the arm: the baseline's decoding meets it for all.
        adversaries = self._decoding["adversary_prompts"] if arm == "ar" else 0
        decoding = {**self._decoding, "adversary_prompts": adversaries}
        return {"arm": arm, "settings": self._arm_spec(arm), "decode": decoding, **_numbers(draw)}

    @cached_property
    def _decoding(self) -> dict[str, Any]:
        """Return the decode block with the one decision rule that decoding applies itself."""
        rules = yaml.safe_load((self.home / "config" / "decision.yaml").read_text())
        return {**self.config["decode"], "allowed_ulp": rules["allowed_ulp"][self.config["runtime"]["dtype"]]}

    def _timing_spec(self, *, draw: str, session: str) -> dict[str, Any]:
        timing = self.config["timing"]
        return {
            "arms": {arm: self._arm_spec(arm) for arm in timing["arms"]},
            "decode": {**self._decoding, "adversary_prompts": 0},
            "timing": {key: timing[key] for key in ("repeats", "staged_prompts", "seed")},
            "session": int(session),
            **_numbers(draw),
        }

    def _summary_spec(self) -> dict[str, Any]:
        dtype = self.config["runtime"]["dtype"]
        return {"arms": self.config["arms"], "statistics": self.config["statistics"], "dtype": dtype}

    def _figures_spec(self) -> dict[str, Any]:
        return {}

    def _report_spec(self) -> dict[str, Any]:
        return {"experiment": self.config["experiment"]}

    def _ledger_spec(self) -> dict[str, Any]:
        return {}

    def _release_spec(self, *, checkout: dict[str, Any]) -> dict[str, Any]:
        return {"release": self.release, "config": self.config, "checkout": checkout}

    # --- with which code -----------------------------------------------------------------------------------------

    def code(self, stage: str, *, kinds: tuple[str, ...] = ()) -> str:
        """Return the digest of the code a stage runs for the given arm or drafter kinds, accepted edits undone."""
        if (stage, kinds) not in self._codes:
            scripts = self.home / "workflow_scripts"
            entries = [scripts / f"{stage}.py", *(self._kind_module(stage, kind) for kind in kinds)]
            self._codes[stage, kinds] = resolve(stage, code_digest(entries, root=scripts), self._accepted)
        return self._codes[stage, kinds]

    def recipes(self) -> dict[str, Any]:
        """Return what decides the recipes of a run: the settings and every stage's code."""
        arms = sorted({arm["kind"] for arm in self.config["arms"].values()})
        drafters = sorted({drafter["kind"] for drafter in self.config["drafters"].values() if "adapter" not in drafter})
        plain = (
            "environment",
            "corpus",
            "model",
            "continuations",
            "windows",
            "teacher",
            "published",
            "summary",
            "figures",
            "report",
        )
        codes = {stage: self.code(stage) for stage in plain}
        codes |= {f"adapter/{kind}": self.code("adapter", kinds=(kind,)) for kind in drafters}
        codes |= {f"decode/{kind}": self.code("decode", kinds=(kind,)) for kind in arms}
        drafters = {
            name: self._published_spec(drafter=name) for name in self.config["drafters"] if self.published(name)
        }
        settings = {"target": self._model_spec(), "drafters": {**self.config["drafters"], **drafters}}
        config = {**_without(self.config, "release"), **settings}
        return {"config": config, "code": codes, "timing": self.code("timing", kinds=self.timed_kinds())}

    def _kind_module(self, stage: str, kind: str) -> Path:
        package = self.home / "workflow_scripts" / "draftledger"
        if kind == "mlx_lm_ar":
            return package / "decoding" / "mlx_lm.py"
        return package / ("training" if stage == "adapter" else "drafters") / f"{kind}.py"

    @cached_property
    def _codes(self) -> dict[tuple[str, tuple[str, ...]], str]:
        return {}

    @cached_property
    def _accepted(self) -> list[dict[str, Any]]:
        return accepted(self.home / "config" / "accepted.json")

    def timed_kinds(self) -> tuple[str, ...]:
        """Return the kinds of the timed arms."""
        return tuple(sorted({self.config["arms"][arm]["kind"] for arm in self.config["timing"]["arms"]}))


def _without(block: dict[str, Any], key: str) -> dict[str, Any]:
    """Leave out a key that no artefact depends on, only its release."""
    return {name: value for name, value in block.items() if name != key}


def _numbers(draw: str) -> dict[str, int | None]:
    if draw == "shared":
        return {"seed": None, "launch": None}
    seed, launch = draw.split("-")
    return {"seed": int(seed.removeprefix("seed")), "launch": int(launch.removeprefix("launch"))}


def software() -> dict[str, str | None]:
    """Return the versions of Python and of every package that decides the bits of a computation."""
    found: dict[str, str | None] = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for name in SOFTWARE:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _versions(*names: str) -> dict[str, str | None]:
    found = software()
    return {name: found[name] for name in names}
