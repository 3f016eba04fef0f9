"""Reads the documents of a corpus: generated, from a pinned Python archive, from a folder, or from a hub."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from draftledger.corpus import synthetic
from draftledger.corpus.archives import download, read_members
from draftledger.corpus.document import Document
from draftledger.errors import SourceError
from draftledger.provenance.digest import file_digest

Spec = Mapping[str, Any]
LIMITS = ("min_characters", "max_documents")
LICENCE_FILE = re.compile(r"(licen[cs]e|copying)(\.(txt|md|rst))?", re.IGNORECASE)


def read_documents(spec: Spec, scratch: Path, counts: Counter[str] | None = None) -> Iterator[Document]:
    """Yield the documents of a corpus in a fixed order; downloads go to the folder `scratch`.

    `spec["kind"]` is a name in `READERS`, where its keys stand, or `several`, with `sources`, a list of such. Texts
    shorter than `min_characters` and those after the first `max_documents` are left out; `counts` tells how many, and
    how many were `read` in all.

    Raises:
        SourceError: an unknown kind or key, no network, a digest that differs, a damaged or unsafe archive,
            text that is not UTF-8.
    """
    kind = spec.get("kind")
    if kind == "several":
        return chain(*(read_documents(source, scratch, counts) for source in spec["sources"]))
    if kind not in READERS:
        raise SourceError(f"corpus kind {kind!r} is unknown; use several or {', '.join(READERS)}")
    read, needed, optional = READERS[kind]
    given = set(spec) - {"kind", *LIMITS}
    if not set(needed) <= given <= {*needed, *optional}:
        raise SourceError(
            f"corpus of kind {kind}: has the keys {', '.join(sorted(given))}; it needs {', '.join(needed)} "
            f"and may have {', '.join((*optional, *LIMITS))}"
        )
    return _within_limits(read(spec, scratch), spec, Counter() if counts is None else counts)


def _within_limits(documents: Iterator[Document], spec: Spec, counts: Counter[str]) -> Iterator[Document]:
    shortest, most = spec.get("min_characters", 1), spec.get("max_documents")
    taken = 0
    for document in documents:
        counts["read"] += 1
        if len(document.text.strip()) < shortest:
            counts["too_short"] += 1
        elif most is not None and taken >= most:
            counts["over_limit"] += 1
        else:
            taken += 1
            yield document


def _synthetic(spec: Spec, scratch: Path) -> Iterator[Document]:
    return synthetic.documents(seed=spec["seed"], count=spec["documents"])


def _package(spec: Spec, scratch: Path) -> Iterator[Document]:
    """Read the wanted members of a digest-pinned archive, in name order; its licence file must be inside."""
    package, digest = spec["package"], spec["sha256"]
    path = download(package, digest=digest, form=spec["kind"], folder=scratch)
    licences = read_members(path, lambda name: bool(LICENCE_FILE.fullmatch(PurePosixPath(name).name)))
    if not licences:
        raise SourceError(f"{package}: the archive holds no licence file; choose another corpus")
    nearest = min(licences, key=lambda name: (name.count("/"), name))
    licence_text = _decode(licences[nearest], where=f"{package}/{nearest}")
    files = read_members(path, lambda name: _wanted(name, spec))
    for name in sorted(files):
        identity = f"{package}/{name}"
        text = _decode(files[name], where=identity)
        yield Document(identity, text, package, f"sha256:{digest}", spec["licence"], licence_text)


def _wanted(name: str, spec: Spec) -> bool:
    """Match the whole path; `*` also stands for slashes."""
    included = any(fnmatchcase(name, glob) for glob in spec["include"])
    return included and not any(fnmatchcase(name, glob) for glob in spec.get("exclude", ()))


def _folder(spec: Spec, scratch: Path) -> Iterator[Document]:
    """Read text files, JSON lines and parquet under a folder, in name order."""
    folder = Path(spec["path"])
    paths = sorted(path for path in folder.glob(spec["glob"]) if path.is_file())
    if not paths:
        raise SourceError(f"{folder}: no file matches {spec['glob']!r}; check path and glob")
    name = folder.resolve().name
    licence = next((p for p in sorted(folder.iterdir()) if LICENCE_FILE.fullmatch(p.name)), None)
    licence_text = _decode(licence.read_bytes(), where=str(licence)) if licence else None
    for path in paths:
        inside = path.relative_to(folder).as_posix()
        revision = f"sha256:{file_digest(path)}"
        for part, text in _texts(path, field=spec.get("text_field", "text")):
            yield Document(f"{name}/{inside}{part}", text, name, revision, spec["licence"], licence_text)


def _texts(path: Path, *, field: str) -> Iterator[tuple[str, str]]:
    """Yield (row mark, text) of one file; the mark is empty where the file is one document."""
    if path.suffix in (".txt", ".md", ".py", ".rst"):
        yield "", _decode(path.read_bytes(), where=str(path))
        return
    if path.suffix == ".jsonl":
        rows = _json_rows(path, field=field)
    elif path.suffix == ".parquet":
        rows = _parquet_rows(path, field=field)
    else:
        raise SourceError(f"{path}: use .txt, .md, .rst, .py, .jsonl or .parquet, or narrow the glob")
    for number, text in enumerate(rows):
        if not isinstance(text, str):
            raise SourceError(f"{path} row {number}: field {field!r} is not text; correct text_field")
        yield f"#{number}", text


def _json_rows(path: Path, *, field: str) -> Iterator[Any]:
    lines = _decode(path.read_bytes(), where=str(path)).split("\n")
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield json.loads(line)[field]
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise SourceError(f"{path} line {number}: not JSON with the field {field!r}") from error


def _parquet_rows(path: Path, *, field: str) -> Iterator[Any]:
    try:
        column = pq.ParquetFile(path).read(columns=[field])[field]
    except (OSError, KeyError, pa.ArrowException) as error:
        raise SourceError(f"{path}: not a parquet file with the column {field!r}") from error
    yield from column.to_pylist()


def _hub(spec: Spec, scratch: Path) -> Iterator[Document]:
    """Read a data set at a pinned commit through `datasets`, in row order."""
    if not re.fullmatch(r"[0-9a-f]{40}", spec["revision"]):
        raise SourceError(f"{spec['repo']}: revision must be a commit of 40 hex digits, not a branch or tag")
    from datasets import load_dataset  # heavy, and needed by no other kind

    where = (spec["repo"], spec.get("config"))
    try:
        rows = load_dataset(*where, split=spec["split"], revision=spec["revision"], cache_dir=str(scratch))
    except Exception as error:  # the library and its transports raise unrelated types
        reason = " ".join(str(error).split())[:200]
        raise SourceError(f"{spec['repo']}: cannot be read ({reason}); check name and network") from error
    for number, row in enumerate(rows):
        text = row.get(spec["text_field"])
        if not isinstance(text, str):
            raise SourceError(f"{spec['repo']} row {number}: field {spec['text_field']!r} is not text")
        identity = f"{spec['repo']}/{spec['split']}#{number}"
        yield Document(identity, text, spec["repo"], spec["revision"], spec["licence"])


def _decode(content: bytes, *, where: str) -> str:
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise SourceError(f"{where}: not UTF-8 text; exclude it or convert it") from error


PACKAGE_KEYS = ("package", "sha256", "licence", "include")
Reader = Callable[[Spec, Path], Iterator[Document]]
READERS: dict[str, tuple[Reader, tuple[str, ...], tuple[str, ...]]] = {
    "synthetic": (_synthetic, ("seed", "documents"), ()),
    "wheel": (_package, PACKAGE_KEYS, ("exclude",)),
    "sdist": (_package, PACKAGE_KEYS, ("exclude",)),
    "folder": (_folder, ("path", "glob", "licence"), ("text_field",)),
    "hub": (_hub, ("repo", "revision", "split", "text_field", "licence"), ("config",)),
}
