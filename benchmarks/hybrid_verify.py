"""A hybrid target's verify pass: its recurrence in chunks against mlx-lm's token by token, and a forward by width."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from _common import finish, interleaved, prepare, ratio

KEY_HEADS, VALUE_HEADS, SIZE, LAYERS = 16, 32, 128, 24
WIDTH, WIDTHS = 5, (1, 2, 4, 5, 8, 9, 16, 17)
CONTEXT = 64
MODEL = {
    "model_type": "qwen3_5",
    "vocab_size": 248320,
    "hidden_size": 2560,
    "intermediate_size": 9216,
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": KEY_HEADS,
    "linear_num_value_heads": VALUE_HEADS,
    "linear_key_head_dim": SIZE,
    "linear_value_head_dim": SIZE,
    "full_attention_interval": 4,
    "tie_word_embeddings": True,
}

Side = Callable[[], float]


def main() -> None:
    """Print the recurrence alone and, off the CPU, a whole forward in both forms at every width, then the ratios."""
    environment = prepare()
    layers = 1 if environment["backend"] == "cpu" else LAYERS
    sides = [recurrence(form, width, layers) for width in WIDTHS for form in ("one_by_one", "in_chunks")]
    table(f"recurrence of {layers} layers", measured(sides, rounds=6))
    place = 2 * WIDTHS.index(WIDTH)
    by_token, in_chunks = measured(sides[place : place + 2], rounds=20)
    figures = {"bar": 3.0, **ratio(in_chunks, by_token), "width_bar": 1.6, **width_ratio(environment)}
    finish("hybrid_verify", environment, **figures)


def width_ratio(environment: dict[str, Any]) -> dict[str, Any]:
    """Print a forward of a 4B-shaped hybrid at every width; return width 5 over width 1, null on a CPU."""
    if environment["backend"] == "cpu":
        print("a forward of a 4B-shaped hybrid: skipped on a CPU")
        return {"width_ratio": None}
    theirs, ours = models()
    sides = [forward(model, width) for width in WIDTHS for model in (theirs, ours)]
    seconds = measured(sides, rounds=10)
    table("forward of a 4B-shaped hybrid", seconds)
    found = ratio(seconds[1], seconds[2 * WIDTHS.index(WIDTH) + 1])
    return {f"width_{name}": value for name, value in found.items()}


def table(what: str, seconds: list[list[float]]) -> None:
    """Print a line per width: median milliseconds of mlx-lm's form and of ours."""
    print(f"{what}, ms\nwidth  by token  in chunks")
    for place, width in enumerate(WIDTHS):
        by_token, in_chunks = (1e3 * median(side) for side in seconds[2 * place : 2 * place + 2])
        print(f"{width:5} {by_token:9.2f} {in_chunks:10.2f}")


def measured(sides: list[Side], *, rounds: int) -> list[list[float]]:
    """Run every side twice to warm up, then all of them in turn."""
    for side in [*sides, *sides]:
        side()
    return interleaved(sides, rounds=rounds)


def recurrence(form: str, width: int, layers: int) -> Side:
    """Time the recurrence alone, outputs and last states."""
    import mlx.core as mx

    from draftledger.models import gated_delta

    def drawn(*shape: int) -> mx.array:
        return mx.random.uniform(0, 1, shape)

    states = [drawn(1, VALUE_HEADS, SIZE, SIZE) for _ in range(layers)]
    qk = mx.fast.rms_norm(drawn(1, KEY_HEADS, 2, width, SIZE) - 0.5, None, 1e-6) * SIZE**-0.5
    v, log_g, beta = drawn(1, width, VALUE_HEADS, SIZE), -drawn(1, width, VALUE_HEADS), drawn(1, width, VALUE_HEADS)
    mx.eval(states, qk, v, log_g, beta)
    more = {"fused": mx.metal.is_available()} if form == "one_by_one" else {}

    def run() -> float:
        start = time.perf_counter()
        for state in states:
            y, after = getattr(gated_delta, form)(qk, v, log_g=log_g, beta=beta, state=state, **more)
            mx.async_eval(y, after(width))
        mx.synchronize()
        return time.perf_counter() - start

    return run


def models() -> tuple[Any, Any]:
    """Return a random 4B-shaped hybrid of bfloat16 weights with mlx-lm's layers, and its twin with ours."""
    import mlx.core as mx
    from mlx_lm.models import qwen3_5

    from draftledger.models.exact import exact

    model = qwen3_5.Model(qwen3_5.ModelArgs.from_dict(MODEL))
    model.set_dtype(mx.bfloat16)
    model.eval()
    mx.eval(model.parameters())
    return model, exact(model)


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
