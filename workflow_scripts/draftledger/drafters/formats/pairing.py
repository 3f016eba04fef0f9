"""Whether a drafter was trained for a target: told by sizes, before a round is wasted on a stranger."""

from draftledger.drafters.formats.checks import DrafterConfig
from draftledger.errors import UnsupportedError


def check_pair(config: DrafterConfig, *, hidden: int, layers: int, vocabulary: int, where: str = "drafter") -> None:
    """Raise UnsupportedError when the drafter's hidden size, taps, mask or vocabulary do not fit the target's.

    hidden, layers, vocabulary: the target's. `num_target_layers` is not compared: published ones count an MTP layer.
    """
    deepest, mask, ids = max(config.target_layer_ids), config.mask_token_id, config.vocab_size
    rules = (
        (config.hidden_size != hidden, f"its hidden size is {config.hidden_size}, the target's {hidden}"),
        (deepest >= layers, f"it taps layer {deepest}, the target's last is {layers - 1}"),
        (mask >= vocabulary, f"its mask id is {mask}, the target embeds {vocabulary} ids"),
        (ids > vocabulary, f"it was made for {ids} token ids, the target has {vocabulary}"),
    )
    for broken, told in rules:
        if broken:
            raise UnsupportedError(f"{where}: {told}; it is not this target's drafter")
