"""What all parts of a summary share: the rules, the interval settings and the digests of the inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from draftledger.errors import ConfigError
from draftledger.statistics.cells import Cells
from draftledger.statistics.decision import Decision
from draftledger.statistics.intervals import Interval, bootstrap_interval, linearised, student_interval
from draftledger.statistics.rows import Row


@dataclass(frozen=True, slots=True)
class Study:
    """arms: the config's mapping of arm names; inputs: content digests by role, e.g. `rounds:lookup`."""

    arms: Mapping[str, Mapping[str, Any]]
    decision: Decision
    resamples: int
    confidence: float
    inputs: Mapping[str, Sequence[str]]

    def student(self, cells: Cells) -> Interval:
        """The t interval of the cells' ratio."""
        return student_interval(
            linearised(cells.numerator, cells.denominator),
            seeded=cells.seeded,
            confidence=self.confidence,
            minimum_seeds=self.decision.minimum_seeds,
        )

    def bootstrap(self, cells: Cells) -> Interval:
        """The crossed bootstrap interval of the cells' ratio."""
        return bootstrap_interval(
            cells.numerator,
            cells.denominator,
            seeded=cells.seeded,
            confidence=self.confidence,
            resamples=self.resamples,
            key=self.decision.bootstrap_key,
            minimum_seeds=self.decision.minimum_seeds,
        )

    def row(self, metric: str, arm: str, *, unit: str, roles: Sequence[str], **fields: Any) -> Row:
        """A row with the rules' digest and the digests behind `roles`; raises ConfigError for a role without."""
        missing = [role for role in roles if not self.inputs.get(role)]
        if missing:
            raise ConfigError(f"summary: no content digest for {', '.join(missing)}; pass it in inputs")
        digests = {digest for role in roles for digest in self.inputs[role]}
        sha256 = self.decision.sha256
        return Row(metric=metric, arm=arm, unit=unit, decision=sha256, inputs=tuple(sorted(digests)), **fields)

    def twins(self) -> dict[str, str]:
        """Each A/A twin and the arm that it repeats."""
        return {name: arm["twin_of"] for name, arm in self.arms.items() if arm.get("twin_of")}
