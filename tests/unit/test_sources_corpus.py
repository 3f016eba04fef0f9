"""Corpus sources: pinned archives through pip without a network, folders, a hub, and bad ones refused."""

import hashlib
import io
import json
import stat
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from draftledger.corpus.archives import download, read_members
from draftledger.corpus.document import Document, documents_table
from draftledger.corpus.sources import read_documents
from draftledger.errors import SourceError
from draftledger.provenance.tables import counts_of

METADATA = "Metadata-Version: 2.1\nName: prose\nVersion: 1.0\n"
FILES = {
    "prose/a.py": '"""First text."""\r\n',
    "prose/b.py": '"""Second text."""\n',
    "prose/tests/c.py": "not wanted\n",
    "prose-1.0.dist-info/METADATA": METADATA,
    "prose-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "prose-1.0.dist-info/RECORD": "",
    "prose-1.0.dist-info/licenses/LICENSE": "You may.\n",
}
BACKEND = """
import pathlib
def prepare_metadata_for_build_wheel(folder, config_settings=None):
    info = pathlib.Path(folder) / "prose-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: prose\\nVersion: 1.0\\n")
    return info.name
"""


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_wheel(folder: Path, files: dict[str, str]) -> Path:
    path = folder / "prose-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def make_sdist(folder: Path, members: Iterable[tuple[tarfile.TarInfo | str, str]]) -> Path:
    path = folder / "prose-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for member, text in members:
            info = tarfile.TarInfo(f"prose-1.0/{member}") if isinstance(member, str) else member
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its only index."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    return folder


def package_spec(path: Path, **changed: object) -> dict:
    kind = "wheel" if path.suffix == ".whl" else "sdist"
    spec = {"kind": kind, "package": "prose==1.0", "sha256": digest(path), "licence": "MIT"}
    return {**spec, "include": ["*.py"], "exclude": ["*/tests/*"], **changed}


def test_a_wheel_is_read_in_name_order_with_its_licence(shelf: Path, tmp_path: Path) -> None:
    path = make_wheel(shelf, FILES)
    spec = package_spec(path)
    made = list(read_documents(spec, tmp_path / "scratch"))
    origin = ("prose==1.0", f"sha256:{spec['sha256']}", "MIT", "You may.\n")
    assert made == [
        Document("prose==1.0/prose/a.py", '"""First text."""\n', *origin),
        Document("prose==1.0/prose/b.py", '"""Second text."""\n', *origin),
    ]
    path.unlink()
    assert list(read_documents(spec, tmp_path / "scratch")) == made


def test_a_source_distribution_is_read_without_its_outer_folder(shelf: Path, tmp_path: Path) -> None:
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    members = {"pyproject.toml": project, "backend.py": BACKEND, "LICENSE.txt": "You may.\n", "a.rst": "Text."}
    path = make_sdist(shelf, [*members.items(), ("PKG-INFO", METADATA)])
    spec = package_spec(path, include=["*.rst"])
    made = list(read_documents(spec, tmp_path / "scratch"))
    assert [(document.id, document.text) for document in made] == [("prose==1.0/a.rst", "Text.")]


def test_another_archive_under_the_same_name_is_refused(shelf: Path, tmp_path: Path) -> None:
    spec = package_spec(make_wheel(shelf, FILES))
    make_wheel(shelf, FILES | {"prose/a.py": "changed\n"})
    with pytest.raises(SourceError, match="does not have the pinned sha256") as caught:
        list(read_documents(spec, tmp_path / "scratch"))
    assert "\n" not in str(caught.value)


def test_no_network_is_one_line(shelf: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"prose==1\.0: cannot be downloaded") as caught:
        download("prose==1.0", digest="0" * 64, form="wheel", folder=tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("package", "sha256"), [("prose", "0" * 64), ("prose==1.0", "0" * 63), ("==1", "0" * 64)])
def test_an_incomplete_pin_is_refused(package: str, sha256: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="name==version"):
        download(package, digest=sha256, form="wheel", folder=tmp_path)


def test_an_archive_without_a_licence_is_refused(shelf: Path, tmp_path: Path) -> None:
    path = make_wheel(shelf, {name: text for name, text in FILES.items() if "LICENSE" not in name})
    with pytest.raises(SourceError, match="no licence file"):
        list(read_documents(package_spec(path), tmp_path / "scratch"))


@pytest.mark.parametrize("name", ["../evil.py", "/etc/evil.py", "prose/../../evil.py", "..\\evil.py"])
def test_names_that_lead_out_are_refused(name: str, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"good.py": "x", name: "y"})
    sdist = make_sdist(tmp_path, [("good.py", "x"), (tarfile.TarInfo(name), "y")])
    for path in (wheel, sdist):
        with pytest.raises(SourceError, match="leads out of the archive"):
            read_members(path, lambda name: name == "good.py")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_a_tar_are_refused(kind: bytes, tmp_path: Path) -> None:
    member = tarfile.TarInfo("prose-1.0/link.py")
    member.type, member.linkname = kind, "/etc/passwd"
    with pytest.raises(SourceError, match="link or a device"):
        read_members(make_sdist(tmp_path, [(member, "")]), lambda name: True)


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "link.whl"
    info = zipfile.ZipInfo("link.py")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(SourceError, match="link or a device"):
        read_members(path, lambda name: True)


def test_a_member_that_comes_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="comes twice"):
        read_members(make_sdist(tmp_path, [("a.py", "x"), ("a.py", "y")]), lambda name: True)


def test_a_member_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftledger.corpus.archives.LARGEST_MEMBER", 3)
    for path in (make_sdist(tmp_path, [("a.py", "long")]), make_wheel(tmp_path, {"a.py": "long"})):
        with pytest.raises(SourceError, match="exclude it"):
            read_members(path, lambda name: name == "a.py")


@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
def test_a_cut_archive_is_refused(part: float, tmp_path: Path) -> None:
    text = "".join(f"line {number * number}\n" for number in range(4000))
    for path in (make_sdist(tmp_path, [("a.py", text)]), make_wheel(tmp_path, {"a.py": text})):
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * part)])
        with pytest.raises(SourceError, match="damaged or cut short"):
            read_members(path, lambda name: True)


def test_limits_are_counted(tmp_path: Path) -> None:
    for name, text in {"a": "long enough", "b": "  no ", "c": "long as well", "d": "long again"}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    spec = {"kind": "folder", "path": tmp_path, "glob": "*.txt", "licence": "MIT"}
    counts: Counter[str] = Counter()
    made = read_documents({**spec, "min_characters": 5, "max_documents": 2}, tmp_path, counts)
    told = counts_of(documents_table(made, counts))
    assert told == {"read": 4, "too_short": 1, "over_limit": 1, "duplicates": 0, "kept": 2}


def test_a_folder_gives_files_lines_and_rows(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.md").write_text("# Title")
    (tmp_path / "b.jsonl").write_text('{"body": "one"}\n\n{"body": "two"}\n')
    pq.write_table(pa.table({"body": ["three"]}), tmp_path / "c.parquet")
    (tmp_path / "LICENSE").write_text("You may.")
    spec = {"kind": "folder", "path": tmp_path, "glob": "**/*.*", "licence": "MIT", "text_field": "body"}
    made = list(read_documents(spec, tmp_path))
    stem = tmp_path.name
    assert [(document.id.removeprefix(f"{stem}/"), document.text) for document in made] == [
        ("b.jsonl#0", "one"),
        ("b.jsonl#1", "two"),
        ("c.parquet#0", "three"),
        ("sub/a.md", "# Title"),
    ]
    assert {document.licence_text for document in made} == {"You may."}
    assert made[0].revision == f"sha256:{digest(tmp_path / 'b.jsonl')}"


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.txt", b"\xff\xfe\x00", "not UTF-8"),
        ("a.jsonl", b'{"text": 7}', "field 'text' is not text"),
        ("a.jsonl", b"{", "line 1: not JSON"),
        ("a.jsonl", b'{"body": "x"}', "with the field 'text'"),
        ("a.parquet", b"PAR1", "not a parquet file"),
        ("a.csv", b"x", "narrow the glob"),
    ],
)
def test_a_bad_file_is_named(name: str, content: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=told):
        list(read_documents({"kind": "folder", "path": tmp_path, "glob": "a.*", "licence": "MIT"}, tmp_path))


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(SourceError, match="no file matches"):
            list(read_documents({"kind": "folder", "path": path, "glob": "*.txt", "licence": "MIT"}, tmp_path))


@pytest.fixture
def hub(tmp_path: Path) -> dict:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ("one", "two")))
    spec = {"kind": "hub", "repo": str(folder), "revision": "a" * 40, "split": "train"}
    return {**spec, "text_field": "text", "licence": "MIT"}


def test_a_hub_data_set_is_read_in_row_order(hub: dict, tmp_path: Path) -> None:
    made = list(read_documents(hub, tmp_path / "scratch"))
    assert [document.text for document in made] == ["one", "two"]
    assert made[0].revision == "a" * 40


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"revision": "main"}, "revision must be a commit"),
        ({"text_field": "body"}, "field 'body' is not text"),
        ({"repo": "./absent-folder"}, "cannot be read"),
        ({"split": "test"}, "cannot be read"),
    ],
)
def test_a_hub_data_set_that_is_not_as_told_is_refused(hub: dict, changed: dict, told: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=told) as caught:
        list(read_documents(hub | changed, tmp_path / "scratch"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"kind": "web"}, "kind 'web' is unknown"),
        ({}, "kind None is unknown"),
        ({"kind": "synthetic", "seed": 1}, "it needs seed, documents"),
        ({"kind": "synthetic", "seed": 1, "documents": 2, "speed": 3}, "has the keys documents, seed, speed"),
    ],
)
def test_a_bad_spec_is_refused(spec: dict, told: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=told):
        read_documents(spec, tmp_path)


def test_synthetic_documents_come_from_the_grammar(tmp_path: Path) -> None:
    made = list(read_documents({"kind": "synthetic", "seed": 4, "documents": 6}, tmp_path))
    assert len(made) == 6
    assert {document.licence for document in made} == {"CC0-1.0"}
