"""The block-LoRA adapter file as release A published it: two float32 tensors a linear layer, named by its path."""

from collections.abc import Mapping, Sequence

from draftledger.errors import UnsupportedError

PARTS = ("lora_a", "lora_b")


def check_lora(shapes: Mapping[str, tuple[int, ...]], *, rank: int, modules: Sequence[str], where: str) -> None:
    """Raise UnsupportedError unless a file is a block-LoRA adapter of that rank on exactly those linear layers.

    shapes: by tensor name; `<path>.lora_a` is [in, rank], `<path>.lora_b` is [rank, out].
    """
    seen: set[str] = set()
    for name in sorted(shapes):
        path, _, part = name.rpartition(".")
        seen.add(path.rpartition(".")[2])
        if part not in PARTS:
            raise UnsupportedError(f"{where}: tensor {name} is no part of a block LoRA; is this another drafter?")
        if absent := [other for other in PARTS if f"{path}.{other}" not in shapes]:
            raise UnsupportedError(f"{where}: {path} has no {absent[0]}; the file is incomplete")
        axis = 1 if part == "lora_a" else 0
        if len(shapes[name]) != 2 or shapes[name][axis] != rank:
            raise UnsupportedError(f"{where}: {name} is {list(shapes[name])}, not of rank {rank}; correct `rank`")
    if seen != set(modules):
        raise UnsupportedError(f"{where}: adapts {sorted(seen)}, the config says {sorted(modules)}; correct `modules`")
