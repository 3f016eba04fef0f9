"""Fetching a target: the pinned bytes or one line saying why not, and nothing left behind."""

import hashlib
import json
import shutil
import zipfile
from functools import partial
from pathlib import Path

import pytest
from huggingface_hub import snapshot_download

import tiny_gguf
from draftledger.errors import ConfigError, SourceError
from draftledger.models.load import materialise
from draftledger.models.sources import fetch

MEMBER = "tiny_model/tiny.gguf"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf.write(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def folder(gguf_file: Path) -> Path:
    out = gguf_file.parent / "model"
    materialise(gguf_file, out)
    return out


@pytest.fixture(scope="module")
def packaged(gguf_file: Path) -> dict:
    """The setting for a wheel that holds the GGUF."""
    wheel = gguf_file.parent / "tiny_model-1.0-py3-none-any.whl"
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf_file, MEMBER)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    data = gguf_file.read_bytes()
    pinned = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    return {"kind": "gguf", "package": f"tiny-model @ {wheel.as_uri()}", "member": MEMBER, **pinned}


def cache(folder: Path, root: Path) -> Path:
    """Lay a folder out as the hub's cache does: blobs by digest, a snapshot of links."""
    repo = root / "models--org--tiny"
    snapshot = repo / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repo / "blobs").mkdir()
    for path in folder.iterdir():
        data = path.read_bytes()
        large = path.suffix == ".safetensors"
        name = hashlib.sha256(data).hexdigest() if large else hashlib.sha1(data).hexdigest()
        (repo / "blobs" / name).write_bytes(data)
        (snapshot / path.name).symlink_to(Path("../../blobs") / name)
    return root


def hub(root: Path) -> tuple[dict, partial]:
    spec = {"kind": "hub", "repo": "org/tiny", "revision": COMMIT}
    return spec, partial(snapshot_download, cache_dir=root, local_files_only=True)


def test_wheel_gives_the_pinned_file(packaged: dict, gguf_file: Path, tmp_path: Path) -> None:
    path = fetch(packaged, tmp_path / "scratch")
    assert path.read_bytes() == gguf_file.read_bytes()
    assert list((tmp_path / "scratch").iterdir()) == [path]


def test_fetched_file_is_used_again_only_with_its_digest(packaged: dict, gguf_file: Path, tmp_path: Path) -> None:
    offline = {**packaged, "package": "tiny-model @ file:///nowhere/tiny_model-1.0-py3-none-any.whl"}
    shutil.copy(gguf_file, tmp_path)
    assert fetch(offline, tmp_path).read_bytes() == gguf_file.read_bytes()
    (tmp_path / "tiny.gguf").write_bytes(b"damaged")
    with pytest.raises(SourceError, match="check pip and the network"):
        fetch(offline, tmp_path)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"sha256": "0" * 64}, "is not the pinned 000000000000"),
        ({"bytes": 5}, "instead of 5"),
        ({"member": "tiny_model/other.gguf"}, "other.gguf"),
        ({"package": "tiny-model @ file:///nowhere/tiny_model-1.0-py3-none-any.whl"}, "check pip and the network"),
    ],
)
def test_wrong_wheel_leaves_nothing(packaged: dict, tmp_path: Path, change: dict, name: str) -> None:
    with pytest.raises(SourceError, match=name) as raised:
        fetch({**packaged, **change}, tmp_path)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_local_gguf_is_checked(packaged: dict, gguf_file: Path, tmp_path: Path) -> None:
    spec = {"kind": "gguf", "path": str(gguf_file), "sha256": packaged["sha256"]}
    assert fetch(spec, tmp_path) == gguf_file
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(gguf_file.read_bytes()[:-1])
    with pytest.raises(SourceError, match="is not the pinned"):
        fetch({**spec, "path": str(cut)}, tmp_path)


def test_hub_snapshot_comes_from_the_cache(folder: Path, tmp_path: Path) -> None:
    spec, download = hub(cache(folder, tmp_path))
    found = fetch(spec, tmp_path / "scratch", download=download)
    materialise(found, tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_damaged_blob_is_refused(folder: Path, tmp_path: Path) -> None:
    spec, download = hub(cache(folder, tmp_path))
    blob = next(tmp_path.glob("*/snapshots/*/model.safetensors")).resolve()
    blob.write_bytes(blob.read_bytes()[:-1] + b"\0")
    with pytest.raises(SourceError, match="differs from its digest"):
        fetch(spec, tmp_path, download=download)


def test_missing_shard_is_named(folder: Path, tmp_path: Path) -> None:
    spec, download = hub(cache(folder, tmp_path))
    snapshot = next(tmp_path.glob("*/snapshots/*"))
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(SourceError, match=r"model-2\.safetensors is missing"):
        fetch(spec, tmp_path, download=download)


def test_absent_snapshot_is_one_line(tmp_path: Path) -> None:
    spec, download = hub(tmp_path)
    with pytest.raises(SourceError, match="org/tiny@0123456789ab") as raised:
        fetch(spec, tmp_path, download=download)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("revision", ["main", COMMIT[:12], COMMIT.upper(), ""])
def test_hub_needs_a_commit(tmp_path: Path, revision: str) -> None:
    with pytest.raises(ConfigError, match="not a commit"):
        fetch({"kind": "hub", "repo": "org/tiny", "revision": revision}, tmp_path)


def test_local_folder_and_what_it_may_lack(folder: Path, tmp_path: Path) -> None:
    assert fetch({"kind": "local", "path": str(folder)}, tmp_path) == folder
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        part = tmp_path / name
        shutil.copytree(folder, part)
        (part / name).unlink()
        with pytest.raises(SourceError, match=f"{name} is missing"):
            fetch({"kind": "local", "path": str(part)}, tmp_path)


def test_wrong_settings_are_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        fetch({"kind": "local", "path": str(tmp_path / "none")}, tmp_path)
    with pytest.raises(ConfigError, match="ftp"):
        fetch({"kind": "ftp"}, tmp_path)
    with pytest.raises(ConfigError, match="lacks sha256"):
        fetch({"kind": "gguf", "path": str(Path(__file__))}, tmp_path)
    with pytest.raises(ConfigError, match="lacks repo"):
        fetch({"kind": "hub"}, tmp_path)
