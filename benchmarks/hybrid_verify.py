"""A hybrid target's verify pass: its recurrence against mlx-lm's loop over tokens, and a forward's cost by width."""

import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import Any

from _common import finish, interleaved, prepare, ratio

KEY_HEADS, VALUE_HEADS, SIZE = 16, 32, 128
WIDTH, WIDTHS, PROMPT = 5, (1, 2, 4, 5, 8, 9, 16, 17), 256
CONTEXT = 64
# A 4B-shaped hybrid; a CPU runs eight layers of an .8B-shaped one.
SHAPE = {"vocab_size": 248320, "hidden_size": 2560, "intermediate_size": 9216, "num_hidden_layers": 32}
HEADS = {"num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256, "tie_word_embeddings": True}
SMALL = {"vocab_size": 32768, "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 8}
FEW_HEADS = {**HEADS, "num_attention_heads": 8, "num_key_value_heads": 2}
LINEAR = {
    "linear_num_key_heads": KEY_HEADS,
    "linear_num_value_heads": VALUE_HEADS,
    "linear_key_head_dim": SIZE,
    "linear_value_head_dim": SIZE,
    "full_attention_interval": 4,
}

Side = Callable[[], float]
Sides = dict[str, dict[int, Side]]
Seconds = dict[str, dict[int, list[float]]]


def main() -> None:
    """Print the recurrence and a whole forward by width, in every form, then the ratios at the width that counts."""
    environment = prepare()
    on_cpu = environment["backend"] == "cpu"
    layers = 1 if on_cpu else 24
    alone = measured(recurrences(layers, on_cpu=on_cpu), rounds=12)
    table(f"recurrence of {layers} layers", alone)
    whole = measured(forwards(on_cpu=on_cpu), rounds=10)
    table("forward of a hybrid of mlx-lm's layers and of ours, and of a dense model", whole)
    figures = ratio(alone["ours"][WIDTH], alone["by token"][WIDTH])
    by_width = {f"width_{name}": value for name, value in ratio(whole["ours"][1], whole["ours"][WIDTH]).items()}
    finish("hybrid_verify", environment, bar=3.0, **figures, width_bar=None if on_cpu else 1.6, **by_width)


def table(what: str, seconds: Seconds) -> None:
    """Print a line per width: median milliseconds of each form."""
    print(f"{what}, ms\nwidth" + "".join(f"{name:>12}" for name in seconds))
    for width in next(iter(seconds.values())):
        print(f"{width:5}" + "".join(f"{1e3 * median(found[width]):12.2f}" for found in seconds.values()))


def measured(sides: Sides, *, rounds: int) -> Seconds:
    """Run every side twice to warm up, then all of them in turn."""
    places = [(name, width) for name, widths in sides.items() for width in widths]
    flat = [sides[name][width] for name, width in places]
    for side in [*flat, *flat]:
        side()
    seconds: Seconds = {name: {} for name in sides}
    for (name, width), found in zip(places, interleaved(flat, rounds=rounds), strict=True):
        seconds[name][width] = found
    return seconds


def recurrences(layers: int, *, on_cpu: bool) -> Sides:
    """Return the recurrence alone by form and width, each having told the same outputs and states."""
    from draftledger.models.gated_delta import gated_delta, in_chunks, one_by_one

    forms: dict[str, Callable[..., Any]] = {"by token": one_by_one, "ours": gated_delta}
    forms |= {} if on_cpu else {"in chunks": in_chunks}
    sides: Sides = {name: {} for name in forms}
    for width in (*WIDTHS, PROMPT):
        inputs = drawn(width, layers)
        agree(forms, inputs, width)
        for name, form in forms.items():
            sides[name][width] = partial(timed, partial(run, form, inputs, width))
    return sides


def drawn(width: int, layers: int) -> list[dict[str, Any]]:
    """Draw every layer's inputs; queries and keys as the layers scale them."""
    import mlx.core as mx

    found = []
    for place in range(layers):
        keys = mx.random.split(mx.random.key(1000 * width + place), 5)
        qk = mx.random.normal((1, KEY_HEADS, 2, width, SIZE), key=keys[0])
        scales = mx.array([SIZE**-1.0, SIZE**-0.5])[:, None, None]
        found.append(
            {
                "qk": scales * mx.fast.rms_norm(qk, None, 1e-6),
                "v": mx.random.normal((1, width, VALUE_HEADS, SIZE), key=keys[1]),
                "log_g": -mx.random.uniform(0, 1, (1, width, VALUE_HEADS), key=keys[2]),
                "beta": mx.random.uniform(0, 1, (1, width, VALUE_HEADS), key=keys[3]),
                "state": mx.random.normal((1, VALUE_HEADS, SIZE, SIZE), key=keys[4]),
            }
        )
    mx.eval(found)
    return found


def outcome(form: Callable[..., Any], inputs: Mapping[str, Any], count: int) -> tuple[Any, Any]:
    """Return the outputs and the state after `count` tokens."""
    more = {name: inputs[name] for name in ("log_g", "beta", "state")}
    y, after = form(inputs["qk"], inputs["v"], **more)
    return y, after(count)


def run(form: Callable[..., Any], layers: list[dict[str, Any]], width: int) -> None:
    """Queue every layer's outputs and last state."""
    import mlx.core as mx

    for inputs in layers:
        mx.async_eval(*outcome(form, inputs, width))


def timed(work: Callable[[], None]) -> float:
    """Return the seconds until everything queued is done."""
    import mlx.core as mx

    start = time.perf_counter()
    work()
    mx.synchronize()
    return time.perf_counter() - start


def agree(forms: Mapping[str, Callable[..., Any]], layers: list[dict[str, Any]], width: int) -> None:
    """Stop unless every form tells the outputs and states of mlx-lm's, within 1e-5 of the largest element."""
    import mlx.core as mx

    from draftledger.arrays import number

    for count in {1, (width + 1) // 2, width}:
        wanted = outcome(forms["by token"], layers[0], count)
        for name, form in forms.items():
            for one, other in zip(outcome(form, layers[0], count), wanted, strict=True):
                far = number(mx.abs(one - other).max() / mx.abs(other).max())
                if not far <= 1e-5:
                    sys.exit(f"width {width}, state after {count}: `{name}` is {far:.1e} from mlx-lm's")


def forwards(*, on_cpu: bool) -> Sides:
    """Return verify passes by model and width."""
    return {name: {width: forward(model, width) for width in WIDTHS} for name, model in models(on_cpu=on_cpu).items()}


def models(*, on_cpu: bool) -> dict[str, Any]:
    """Return a random hybrid with mlx-lm's layers, its twin with ours, and a dense model of the same sizes."""
    import mlx.core as mx
    from mlx_lm.models import qwen3, qwen3_5

    from draftledger.models.exact import exact

    sizes = {**SMALL, **FEW_HEADS} if on_cpu else {**SHAPE, **HEADS}
    more = {"rms_norm_eps": 1e-6, "rope_theta": 1e6, "max_position_embeddings": 4096}
    hybrid = qwen3_5.Model(qwen3_5.ModelArgs.from_dict({"model_type": "qwen3_5", **sizes, **LINEAR}))
    dense = qwen3.Model(qwen3.ModelArgs.from_dict({"model_type": "qwen3", **sizes, **more}))
    for model in (hybrid, dense):
        model.set_dtype(mx.float32 if on_cpu else mx.bfloat16)
        model.eval()
        mx.eval(model.parameters())
    return {"mlx-lm": hybrid, "ours": exact(hybrid), "dense": dense}


def forward(model: Any, width: int) -> Side:
    """Time one verify pass of `width` tokens after the context, rolled back."""
    import mlx.core as mx

    from draftledger.models.caches import exact_caches

    caches = exact_caches(model)
    mx.eval(model(mx.arange(CONTEXT)[None], cache=caches))
    ids = mx.arange(width)[None]

    def run() -> float:
        for cache in caches:
            cache.begin(width)
        start = time.perf_counter()
        mx.eval(model(ids, cache=caches))
        seconds = time.perf_counter() - start
        for cache in caches:
            cache.rollback()
        return seconds

    return run


if __name__ == "__main__":
    main()
