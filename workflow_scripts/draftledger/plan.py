"""The plan of a run: which artefacts there are, and the settings and code that each stage depends on."""

import sys
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from draftledger.provenance.code import accepted, code_digest, resolve
from draftledger.provenance.digest import digest

MODEL = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
# What decoding must know of a drafter beside its weights.
SHAPE = ("kind", "rank", "scale", "modules", "bits", "group_size", "shape")
RELEASE = {"level": "rows", "version": "unreleased", "allow_dirty": False}
SOFTWARE = ("mlx", "mlx-lm", "mlx-cpu", "mlx-cuda-13", "mlx-metal", "ngsolve-openblas", "numpy", "tokenizers")


@dataclass(frozen=True)
class Plan:
    """One configuration's artefacts under `results`, and what each is made from.

    `home` is the repository; every path in the plan is relative to the working folder.
    """

    config: dict[str, Any]
    home: Path

    @property
    def root(self) -> str:
        """Return the folder of this experiment's results."""
        name = self.config["experiment"]
        return "results" if name == "default" else f"results/{name}"

    # --- what there is -------------------------------------------------------------------------------------------

    @property
    def draws(self) -> list[str]:
        """Return the training draws, one name a seed and launch; only `shared` when nothing is trained."""
        if not self.trains:
            return ["shared"]
        return [f"seed{s}-launch{n}" for s in self.config["seeds"] for n in range(self.config["launches"])]

    def drafter(self, arm: str) -> str | None:
        """Return the drafter whose weights an arm decodes with, or null for an arm that has none."""
        settings = self.config["arms"][arm]
        return None if settings.get("untrained") else settings.get("drafter")

    def published(self, drafter: str) -> bool:
        """Tell whether a drafter's weights are published ones, so that it has no seed."""
        return "adapter" in self.config["drafters"][drafter]

    def trained(self, arm: str) -> str | None:
        """Return the drafter trained here that an arm decodes with, or null for an arm without a seed."""
        drafter = self.drafter(arm)
        return None if drafter is None or self.published(drafter) else drafter

    @property
    def trains(self) -> bool:
        """Tell whether any arm decodes with weights that are trained here."""
        return any(self.trained(arm) for arm in self.config["arms"])

    def arm_draws(self, arm: str) -> list[str]:
        """Return an arm's draws: `shared` when it has no seed."""
        return self.draws if self.trained(arm) else ["shared"]

    def model(self) -> list[str]:
        """Return the target's files."""
        return [f"{self.root}/model/{name}" for name in MODEL]

    def sources(self, block: str) -> list[str]:
        """Return the local files that the `target` or `corpus` block names, so that their content counts."""
        return _files(self.config.get(block, {}))

    def listing(self, block: str) -> str:
        """Return the digest of the local files' names, sizes and times; a change makes a job look at their content."""
        return _listing(self.sources(block))

    def adapter_sources(self, drafter: str) -> list[str]:
        """Return the local files of a published drafter, so that their content counts."""
        source = self.config["drafters"][drafter]["adapter"]
        names = ("config.json", "*.safetensors", "*.safetensors.index.json")
        return sorted({path for name in names for path in _files({**source, "glob": name})})

    def adapter_listing(self, drafter: str) -> str:
        """Return the digest of those files' names, sizes and times."""
        return _listing(self.adapter_sources(drafter))

    def shards(self, split: str) -> list[str]:
        """Return a split's teacher shards; none when no drafter is trained on them."""
        taught = {name for arm in self.config["arms"] if (name := self.trained(arm))}
        if all(self.config["drafters"][name].get("live") for name in taught):
            return []
        windows, size = self.config["windows"][split], self.config["teacher"]["shard_windows"]
        return [f"{self.root}/teacher/{split}-{i:04d}.safetensors" for i in range(-(-windows // size))]

    def adapter(self, drafter: str, draw: str) -> str:
        """Return the adapter of a drafter's draw; a published drafter has the same one for every draw."""
        place = "published" if self.published(drafter) else draw
        return f"{self.root}/adapters/{drafter}/{place}/adapter.safetensors"

    def arm_adapter(self, arm: str, draw: str) -> list[str]:
        """Return the one adapter that an arm decodes with, or none."""
        drafter = self.drafter(arm)
        return [] if drafter is None else [self.adapter(drafter, draw)]

    def rounds(self, arm: str, draw: str) -> str:
        """Return the rounds of an arm's draw."""
        return f"{self.root}/decode/{arm}/{draw}/rounds.parquet"

    def all_rounds(self) -> list[str]:
        """Return every arm's rounds, over all draws."""
        return [self.rounds(arm, draw) for arm in self.config["arms"] for draw in self.arm_draws(arm)]

    def timed_rounds(self, draw: str) -> list[str]:
        """Return the rounds that one timing session's tokens must equal."""
        return [self.rounds(arm, draw if self.trained(arm) else "shared") for arm in self.config["timing"]["arms"]]

    def timed_adapters(self, draw: str) -> list[str]:
        """Return the adapters that one timing session loads."""
        return sorted({path for arm in self.config["timing"]["arms"] for path in self.arm_adapter(arm, draw)})

    def sessions(self) -> list[str]:
        """Return every timing session's rows."""
        numbers = range(1, self.config["timing"]["sessions"] + 1)
        return [f"{self.root}/timing/{draw}/session{n}.parquet" for draw in self.draws for n in numbers]

    def adapters(self) -> list[str]:
        """Return every adapter that an arm decodes with, over all draws."""
        arms = self.config["arms"]
        return sorted({path for arm in arms for draw in self.draws for path in self.arm_adapter(arm, draw)})

    def histories(self) -> list[str]:
        """Return the training history of every adapter that was trained here."""
        trained = {name for arm in self.config["arms"] if (name := self.trained(arm))}
        places = [self.adapter(name, draw) for name in sorted(trained) for draw in self.draws]
        return [path.replace("adapter.safetensors", "history.parquet") for path in places]

    def windows(self) -> list[str]:
        """Return the windows and their overlap with the prompts; none when nothing is trained."""
        names = ("train", "validation", "overlap") if self.trains else ()
        return [f"{self.root}/windows/{name}.parquet" for name in names]

    def corpus(self) -> list[str]:
        """Return the documents that training, or the tiny target, reads."""
        needed = self.windows() or self.config["target"]["kind"] == "tiny"
        return [f"{self.root}/corpus/documents.parquet"] if needed else []

    @property
    def release(self) -> dict[str, Any]:
        """Return the `release` block with its defaults."""
        return {**RELEASE, **self.config.get("release", {})}

    def evidence(self) -> list[str]:
        """Return every payload that stands behind the summary, in the order of the workflow."""
        shards = [path for split in ("train", "validation") for path in self.shards(split)]
        return [
            f"{self.root}/environment.json",
            *self.corpus(),
            *self.model(),
            *self.windows(),
            *shards,
            *(path.replace(".safetensors", ".bounds.parquet") for path in shards),
            *self.adapters(),
            *self.histories(),
            *self.all_rounds(),
            *(path.replace("rounds.parquet", "positions.parquet") for path in self.all_rounds()),
            *self.sessions(),
            *(path.replace(".parquet", ".cost.parquet") for path in self.sessions()),
            *(f"{self.root}/summary.{suffix}" for suffix in ("parquet", "tsv", "html")),
        ]

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

    def _windows_spec(self) -> dict[str, Any]:
        libraries = {name: software()[name] for name in ("numpy", "tokenizers")}
        return {
            "windows": self.config.get("windows"),
            "prompts": self.config["decode"]["prompts"],
            "software": libraries,
        }

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
        plain = ("environment", "corpus", "model", "windows", "teacher", "published", "summary", "figures", "report")
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


def _files(settings: dict[str, Any]) -> list[str]:
    path = Path(settings.get("path", ""))
    if path.is_dir() and path != Path():
        return sorted(str(file) for file in path.glob(settings.get("glob", "*")) if file.is_file())
    return [str(path)] if path.is_file() else []


def _listing(paths: list[str]) -> str:
    found = [(path, Path(path).stat()) for path in paths]
    return digest([[path, stat.st_size, stat.st_mtime_ns] for path, stat in found])


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
