"""Which payloads a release holds: by its level, and by the licence of each."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from draftledger.provenance.licences import PROJECT, may_pass_on

TARGET = "the target"  # no drafter can have this name
LEVELS = ("rows", "adapters", "full")
# The rows behind every number, and what is drawn from them; what is not named here takes the level `full`.
ROWS = re.compile(
    r"environment\.json|SHA256SUMS|summary\.\w+|report\.html|(?:decode|timing|figures)/.+"
    r"|adapters/.+/history\.parquet|windows/overlap\.parquet|teacher/.+\.bounds\.parquet"
)
ADAPTER = re.compile(r"adapters/.+\.safetensors")


def level_of(role: str) -> str:
    """Return the lowest level at which a payload is packed."""
    return "rows" if ROWS.fullmatch(role) else "adapters" if ADAPTER.fullmatch(role) else "full"


def wanted(roles: Iterable[str], level: str) -> list[str]:
    """Return the payloads that a level packs, licences apart."""
    return [role for role in roles if LEVELS.index(level_of(role)) <= LEVELS.index(level)]


def why_left_out(role: str, *, level: str, config: Mapping[str, Any], documents: Iterable[str]) -> str | None:
    """Return why a payload is not packed, or null when it is; `documents` are the licences of the corpus."""
    if not wanted([role], level):
        return f"a release of level {level} does not hold it"
    for licence in _licences(role, config, documents):
        if not may_pass_on(licence):
            return f"{licence or 'no licence'}: not known to allow passing it on"
    return None


def _licences(role: str, config: Mapping[str, Any], documents: Iterable[str]) -> list[str | None]:
    """Return every licence that a payload is under: what is trained or computed here is under its sources'."""
    weights = weight_licences(config)
    match level_of(role):
        case "rows":
            return []
        case "adapters":
            return [weights.get(role.split("/")[1], weights[TARGET])]
    own: dict[str, list[str | None]] = {"model": [weights[TARGET]], "corpus": [*documents]}
    if "continuations" not in config:
        own["windows"] = [*documents]
    return own.get(role.split("/")[0], [weights[TARGET], *documents])


def weight_licences(config: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the licence of the target and of each published drafter, or null when the configuration states none.

    The tiny target is this project's own; a drafter trained here is under the licence of its target.
    """
    own = PROJECT if config["target"]["kind"] == "tiny" else config["target"].get("licence")
    published = {name: drafter["adapter"] for name, drafter in config["drafters"].items() if "adapter" in drafter}
    return {TARGET: own, **{name: adapter.get("licence") for name, adapter in published.items()}}
