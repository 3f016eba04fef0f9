"""Which artefacts a configuration has: their places under `results`, and the files of the user that they read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftledger.provenance.digest import digest

MODEL = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
RELEASE = {"level": "rows", "version": "unreleased", "allow_dirty": False}


@dataclass(frozen=True)
class Artefacts:
    """One configuration's artefacts under `results`.

    `home` is the repository; every path in the plan is relative to the working folder.
    """

    config: dict[str, Any]
    home: Path

    @property
    def root(self) -> str:
        """Return the folder of this experiment's results."""
        name = self.config["experiment"]
        return "results" if name == "default" else f"results/{name}"

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
        settings = self.config.get(block, {})
        return [path for source in settings.get("sources", [settings]) for path in _files(source)]

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

    def answers(self) -> list[str]:
        """Return the target's own answers that windows are cut from; none when they are cut from the documents."""
        jobs = self.config.get("continuations", {}).get("jobs", 0) if self.trains else 0
        return [f"{self.root}/continuations/answers-{number:04d}.parquet" for number in range(jobs)]

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
            *self.answers(),
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


def _files(settings: dict[str, Any]) -> list[str]:
    path = Path(settings.get("path", ""))
    if path.is_dir() and path != Path():
        return sorted(str(file) for file in path.glob(settings.get("glob", "*")) if file.is_file())
    return [str(path)] if path.is_file() else []


def _listing(paths: list[str]) -> str:
    found = [(path, Path(path).stat()) for path in paths]
    return digest([[path, stat.st_size, stat.st_mtime_ns] for path, stat in found])
