"""Run in a process of its own, with another project on its path: what that project's drafters say to given inputs."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map

from block_drafters import deep
from targets import prompt


class Words:
    """A tokenizer as both projects want one; every id is a word."""

    eos_token_id, bos_token, chat_template, clean_up_tokenization_spaces = -1, None, None, False
    eos_token_ids = frozenset()

    def decode(self, ids, **_):
        return " ".join(map(str, ids))

    def encode(self, text, **_):
        return [int(word) if word.isdigit() else 0 for word in text.split()]

    def convert_tokens_to_ids(self, _):
        return None

    def get_vocab(self):
        return {}

    def apply_chat_template(self, messages, **_):
        return messages


def counted(model):
    """Return a model of the same weights, and the list that grows by its calls' widths."""
    calls = []

    class Counted(type(model)):
        def __call__(self, ids, *rest, **named):
            calls.append(ids.shape[1])
            return super().__call__(ids, *rest, **named)

    model.__class__ = Counted
    return model, calls


def single(drafter):
    """Cast to float32, which the target is in."""
    drafter.update(
        tree_map(lambda x: x.astype(mx.float32) if mx.issubdtype(x.dtype, mx.floating) else x, drafter.parameters())
    )
    return drafter


def zlab(folder: Path, rounds, case) -> dict:
    """z-lab: logits of the mask rows, the greedy choice, and an answer."""
    from dflash import model_mlx as peer

    peer.snapshot_download = lambda path, **_: path
    model, calls = counted(deep.__wrapped__())
    drafter = single(peer.load_draft(str(folder))).bind(model)
    found, cache, again = {}, drafter.make_cache(), drafter.make_cache()
    for i, (heard, block) in enumerate(rounds):
        found[f"logits{i}"] = drafter(block[None], heard[None], cache, logits_start=1)[0]
        if hasattr(drafter, "candidate_selector"):
            found[f"tokens{i}"] = drafter.propose(block[None], heard[None], again, 0.0, logits_start=1)[0][0]
    # Beyond what is compared, because it narrows its last blocks.
    limit, answer = case["count"] + drafter.config.block_size, []
    for part in peer.stream_generate(model, drafter, Words(), prompt(12, key=1), max_tokens=limit):
        answer += part.tokens
        if len(answer) >= case["count"]:
            break
    prefill = sum(width != drafter.config.block_size for width in calls[:2])
    return {**found, "answer": mx.array(answer[: case["count"]]), "forwards": mx.array(len(calls) - prefill + 1)}


def mlx_dspark(folder: Path, rounds, case) -> dict:
    """mlx-dspark: the same of its DFlash and DSpark drafters, and DSpark's confidence."""
    from mlx_dspark import Target, dflash_generate, load_dflash, load_drafter, speculative_generate

    spark = case["kind"] == "dspark"
    target = Target(deep.__wrapped__(), Words())
    drafter, config = (load_drafter if spark else load_dflash)(str(folder), quantize=False)
    found = (_spark if spark else _flash)(single(drafter), config, target, rounds)
    generate = speculative_generate if spark else dflash_generate
    said = generate(
        target,
        Words(),
        drafter,
        prompt_ids=prompt(12, key=1).tolist(),
        max_new_tokens=case["count"],
        max_draft_tokens=None,
        lookup_drafts=False,
    )
    return {**found, "answer": mx.array(said.token_ids[: case["count"]]), "forwards": mx.array(said.target_forwards)}


def _flash(drafter, config, target, rounds) -> dict:
    found, cache, again = {}, drafter.bind(target.model).make_cache(), drafter.make_cache()
    for i, (heard, block) in enumerate(rounds):
        found[f"logits{i}"] = drafter(block[None], heard[None], cache, logits_start=1)[0]
        if config.selector_rank:
            rest = {"cap": config.block_size - 1, "anchor_id": int(block[0].item())}
            found[f"tokens{i}"] = drafter.select_block(block[None], heard[None], again, **rest)[0]
    return found


def _spark(drafter, config, target, rounds) -> dict:
    if not config.has_own_embed:
        drafter.bind_embed(target.draft_embed)
    if not config.has_own_lm_head:
        drafter.bind_lm_head(target.lm_head_proj)
    found, caches, offset = {}, drafter.make_ctx_cache(), 0
    for i, (heard, block) in enumerate(rounds):
        drafter.update_context(heard[None], offset, caches)
        offset += heard.shape[0]
        hidden = drafter.backbone(drafter.embed(block[None]), offset, caches)[:, config.logits_start :]
        logits, anchor = drafter.compute_logits(hidden)[0], int(block[0].item())
        found[f"logits{i}"], tokens = logits, drafter.sample_block(logits, anchor)
        found[f"tokens{i}"] = tokens
        if drafter.confidence_head is not None:
            before = mx.concatenate([block[:1], tokens[:-1]])
            found[f"confidence{i}"] = mx.sigmoid(drafter.confidence_logits(hidden[0], before))
    return found


def main(peer: str, folder: Path) -> None:
    """Write what a peer says of every case under a folder as arrays beside it."""
    run = SimpleNamespace(zlab=zlab, mlx_dspark=mlx_dspark).__dict__[peer]
    for place in sorted(path.parent for path in folder.glob("*/case.json")):
        case = json.loads((place / "case.json").read_text())
        if peer not in case["peers"]:
            continue
        arrays = mx.load(str(place / "inputs.npz"))
        rounds = [(arrays[f"heard{i}"], arrays[f"block{i}"]) for i in range(len(arrays) // 2)]
        found = run(place, rounds, case)
        np.savez(place / f"{peer}.npz", **{name: np.array(value) for name, value in found.items()})


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
