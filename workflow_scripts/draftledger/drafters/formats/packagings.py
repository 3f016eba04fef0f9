"""The ways in which drafters are published: a table of what tells each one, and of what it means by its settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from draftledger.drafters.formats.meanings import (
    INNER,
    Settings,
    all_full,
    declared_row,
    gemma4_heads,
    interleaved_rope,
    nested_causality,
    real_partial_rotary,
    real_scaling,
    second_row,
    whole_vocabulary,
)
from draftledger.drafters.formats.settings import Config, at, gathered
from draftledger.drafters.formats.shapes import BORROWED
from draftledger.errors import UnsupportedError

PRESENT = object()


@dataclass(frozen=True, slots=True)
class Packaging:
    """One way of publishing: the values that tell it by dotted path, its kind, and what its settings mean.

    `inside` is the block that holds the backbone's settings; `fixed` are settings that it never writes down;
    `mend` changes those gathered; `dropped` are tensors that are the target's. With `refused`, it is told only to be
    refused for that reason.
    """

    name: str
    kind: str
    told_by: Mapping[str, Any]
    inside: str | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    mend: tuple[Callable[[Config, Settings], Settings], ...] = ()
    offset_norms: bool = False
    dropped: tuple[str, ...] = ()
    refused: str | None = None

    def fits(self, config: Config) -> bool:
        """Tell whether a config.json is of this packaging."""
        return all(_holds(at(config, path), wanted) for path, wanted in self.told_by.items())

    def settings(self, config: Config) -> Settings:
        """Return the settings of a config.json by their internal names."""
        found = {**gathered(config, self.kind, inside=self.inside), **self.fixed}
        for change in self.mend:
            found = change(config, found)
        return found


def _holds(found: Any, wanted: Any) -> bool:
    if wanted is PRESENT:
        return bool(found)
    return wanted in found if isinstance(found, list) else found == wanted


def recognise(config: Config | None, *, where: str) -> Packaging:
    """Return the first packaging in the table that fits; raise UnsupportedError with the reason when none may be."""
    if config is None:
        raise UnsupportedError(f"{where}: no config in its metadata; give the folder with its config.json")
    found = next((packaging for packaging in PACKAGINGS if packaging.fits(config)), None)
    if found is None:
        told = config.get("architectures") or config.get("model_type") or "nothing"
        raise UnsupportedError(f"{where}: no known drafter packaging: config.json says {told}")
    if found.refused:
        raise UnsupportedError(f"{where}: {found.name}: {found.refused}")
    return found


DEEPSPEC = (all_full, whole_vocabulary)
SPECULATORS = (nested_causality, whole_vocabulary, real_scaling)

# The first that fits counts, so what is refused and what is most particular stands first.
PACKAGINGS = (
    Packaging(
        "target with a drafter inside",
        "dspark",
        {"dspark_block_size": PRESENT},
        refused="the drafter is part of a whole model; extract it first",
    ),
    Packaging(
        "PrismML Bonsai",
        "dspark",
        {"log_snr_conditioning": True},
        refused="its log-SNR embedding is not supported",
    ),
    Packaging(
        "speculators DSpark", "dspark", {"speculators_model_type": "dspark"}, INNER, mend=(*SPECULATORS, declared_row)
    ),
    Packaging(
        "speculators DFlash",
        "dflash",
        {"speculators_model_type": "dflash"},
        INNER,
        mend=(*SPECULATORS, second_row),
        dropped=BORROWED,
    ),
    Packaging(
        "speculators DFlash 2",
        "dflash2",
        {"speculators_model_type": "dflash2"},
        INNER,
        mend=(*SPECULATORS, second_row),
        dropped=BORROWED,
    ),
    Packaging(
        "speculators",
        "dspark",
        {"speculators_model_type": PRESENT},
        refused="its algorithm is another; dflash, dflash2 and dspark are read",
    ),
    Packaging(
        "SpecForge DSpark",
        "dspark",
        {"dflash_config.projector_type": "dspark"},
        fixed={"first_row": 0},
        mend=(real_scaling,),
    ),
    Packaging(
        "SpecForge",
        "dflash",
        {"dflash_config.projector_type": "domino"},
        refused="its Domino correction head is not supported",
    ),
    Packaging(
        "LiquidAI DSpark",
        "dspark",
        {"architectures": "Lfm2DSparkDraftModel"},
        fixed={"first_row": 0},
        mend=(interleaved_rope,),
    ),
    Packaging(
        "Qwen3.5-native DSpark",
        "dspark",
        {"architectures": "Qwen35DSparkModel"},
        fixed={"first_row": 0},
        mend=(*DEEPSPEC, real_partial_rotary),
        offset_norms=True,
    ),
    Packaging(
        "NVIDIA DSpark",
        "dspark",
        {"architectures": "Qwen3DSparkModel", "dflash_query_causal": True},
        fixed={"first_row": 1},
    ),
    Packaging(
        "DeepSpec DSpark",
        "dspark",
        {"architectures": "Qwen3DSparkModel"},
        fixed={"first_row": 0},
        mend=DEEPSPEC,
    ),
    Packaging(
        "DeepSpec DSpark for Gemma 4",
        "dspark",
        {"architectures": "Gemma4DSparkModel"},
        fixed={"first_row": 0, "family": "gemma4"},
        mend=(*DEEPSPEC, gemma4_heads),
    ),
    Packaging(
        "DFlash with a Markov head",
        "dflash",
        {"architectures": "DFlashDraftModel", "markov_rank": PRESENT},
        refused="a DFlash head with DSpark's Markov head is neither; which row predicts first is not said",
    ),
    Packaging("z-lab DFlash 2", "dflash2", {"architectures": "DFlash2DraftModel"}, mend=(real_scaling,)),
    Packaging("z-lab DFlash", "dflash", {"architectures": "DFlashDraftModel"}, mend=(real_scaling,)),
)
