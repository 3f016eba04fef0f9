"""The tensors that a drafter's settings call for, by internal name (z-lab's), and the check against those there are."""

from collections.abc import Mapping
from typing import Any

from draftledger.errors import UnsupportedError

Shape = tuple[int, ...]
Shapes = dict[str, Shape]
Settings = Mapping[str, Any]
# May be absent: the drafter then uses the target's own.
BORROWED = ("embed_tokens.weight", "lm_head.weight")


def expected(kind: str, settings: Settings) -> Shapes:
    """Return the name and shape of every tensor of a drafter; a file may leave out those of BORROWED."""
    hidden, taps = settings["hidden_size"], len(settings["target_layer_ids"])
    found = {"fc.weight": (hidden, taps * hidden), "hidden_norm.weight": (hidden,), "norm.weight": (hidden,)}
    layer = _gemma4_layer if settings.get("family") == "gemma4" else _layer
    for place in range(settings["num_hidden_layers"]):
        names = {**layer(settings), **(_convolutions(settings) if kind == "dflash2" else {})}
        found |= {f"layers.{place}.{name}": shape for name, shape in names.items()}
    return found | {"dflash": dict, "dflash2": lambda: _selector(settings), "dspark": lambda: _heads(settings)}[kind]()


def _layer(settings: Settings) -> Shapes:
    hidden, inner, head = settings["hidden_size"], settings["intermediate_size"], settings["head_dim"]
    queries, keys = settings["num_attention_heads"] * head, settings["num_key_value_heads"] * head
    sinks = {"self_attn.sinks": (settings["num_attention_heads"],)} if settings.get("attention_sinks") else {}
    return {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries * (2 if settings.get("gated_query") else 1), hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "self_attn.q_norm.weight": (head,),
        "self_attn.k_norm.weight": (head,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        **sinks,
    }


def _gemma4_layer(settings: Settings) -> Shapes:
    """Return the layer whose values are its normalised keys: no v_proj, two norms more, and a scalar."""
    hidden, plain = settings["hidden_size"], _layer(settings)
    del plain["self_attn.v_proj.weight"]
    norms = {f"{side}_feedforward_layernorm.weight": (hidden,) for side in ("pre", "post")}
    return {**plain, **norms, "layer_scalar": (1,)}


def _convolutions(settings: Settings) -> Shapes:
    hidden, size = settings["hidden_size"], settings["conv_kernel_size"]
    rows = 2 * size * (hidden // settings["conv_group_size"])
    found: Shapes = {}
    for place in ("attention_conv", "mlp_conv"):
        found[f"{place}.base_kernel"] = (2, size, hidden)
        found[f"{place}.kernel_projection.weight"] = (rows, hidden)
    return found


def _selector(settings: Settings) -> Shapes:
    vocabulary, rank = settings["vocab_size"], settings["selector_rank"]
    return {
        "candidate_selector.predecessor_codebook": (vocabulary, rank),
        "candidate_selector.successor_codebook": (vocabulary, rank),
        "candidate_selector.hidden_projection.weight": (rank, settings["hidden_size"]),
    }


def _heads(settings: Settings) -> Shapes:
    hidden, vocabulary, rank = settings["hidden_size"], settings["vocab_size"], settings.get("markov_rank", 0)
    drafted = settings.get("draft_vocab_size") or vocabulary
    found: Shapes = {"embed_tokens.weight": (vocabulary, hidden), "lm_head.weight": (drafted, hidden)}
    if drafted != vocabulary:
        found["d2t"] = (drafted,)
    if rank:
        found |= {f"markov_head.{name}": shape for name, shape in _markov(settings, rank, drafted).items()}
    if settings.get("enable_confidence_head"):
        width = hidden + (rank if settings.get("confidence_head_with_markov") else 0)
        found |= {"confidence_head.proj.weight": (1, width), "confidence_head.proj.bias": (1,)}
    return found


def _markov(settings: Settings, rank: int, drafted: int) -> Shapes:
    hidden = settings["hidden_size"]
    extra: dict[str, Shapes] = {
        "vanilla": {},
        "gated": {"gate_proj.weight": (rank, hidden + rank), "gate_proj.bias": (rank,)},
        "rnn": {"joint_proj.weight": (3 * rank, 2 * rank + hidden), "joint_proj.bias": (3 * rank,)},
    }
    own = extra[settings.get("markov_head_type", "vanilla")]
    return {"markov_w1.weight": (settings["vocab_size"], rank), "markov_w2.weight": (drafted, rank), **own}


def check_shapes(found: Mapping[str, Shape], wanted: Mapping[str, Shape], *, where: str) -> None:
    """Raise UnsupportedError for the first tensor that is missing, left over or mis-shaped."""
    missing = sorted(set(wanted) - set(found) - set(BORROWED))
    if missing:
        raise UnsupportedError(f"{where}: tensor {missing[0]} is missing; half a drafter would draft in vain")
    if extra := sorted(set(found) - set(wanted)):
        raise UnsupportedError(f"{where}: tensor {extra[0]} is left over; its config.json does not call for it")
    for name in sorted(found):
        if tuple(found[name]) != tuple(wanted[name]):
            told = f"{list(found[name])} instead of {list(wanted[name])}"
            raise UnsupportedError(f"{where}: tensor {name} is {told}; file and config.json are not a pair")
