"""The mlx-lm folder of a target: four files, placed only when all are complete, weights streamed."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from draftledger.errors import CorruptError, SourceError

FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
LARGEST_HEADER = 100_000_000  # bytes of a safetensors header: the format's own limit


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor to write: safetensors dtype name, shape, and a call that yields its bytes."""

    dtype: str
    shape: tuple[int, ...]
    size: int
    read: Callable[[], bytes]


@contextmanager
def placed(out: Path, *, names: Sequence[str] = FILES) -> Iterator[Path]:
    """A scratch folder whose files of these names move into `out` at the end; after an error `out` is as before."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".part-") as scratch:
        yield Path(scratch)
        for name in names:
            os.replace(Path(scratch) / name, out / name)


def write_json(path: Path, value: dict) -> None:
    """Write sorted, indented JSON."""
    path.write_text(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict:
    """Read a JSON object; raises SourceError when it is absent or broken."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SourceError(f"{path.parent}: {path.name} is missing") from error
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise SourceError(f"{path}: not a JSON object")
    return value


def write_safetensors(path: Path, tensors: Mapping[str, Tensor], *, metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors in the order of their names, one in memory at a time."""
    header: dict = {"__metadata__": {"format": "mlx", **(metadata or {})}}
    offset = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        span = [offset, offset + tensor.size]
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": span}
        offset += tensor.size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for name in sorted(tensors):
            data = tensors[name].read()
            if len(data) != tensors[name].size:
                raise CorruptError(f"{name}: {len(data)} bytes, its header says {tensors[name].size}")
            stream.write(data)


def scan_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, unread; raises SourceError when the file is cut or broken."""
    size = path.stat().st_size
    try:
        with path.open("rb") as stream:
            start = 8 + int.from_bytes(stream.read(8), "little")
            if start > min(size, LARGEST_HEADER):
                raise ValueError("cut inside its header")
            header = json.loads(stream.read(start - 8))
        header.pop("__metadata__", None)
        spans = {name: entry["data_offsets"] for name, entry in header.items()}
        if start + max((end for _, end in spans.values()), default=0) != size:
            raise ValueError(f"its size of {size} bytes differs from its header's")
        return {
            name: Tensor(
                entry["dtype"],
                tuple(entry["shape"]),
                high - low,
                partial(_read, path, start + low, high - low),
            )
            for name, entry in header.items()
            for low, high in [spans[name]]
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SourceError(f"{path}: not a complete safetensors file: {error}; fetch it again") from error


def _read(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as stream:
        stream.seek(offset)
        return stream.read(size)
