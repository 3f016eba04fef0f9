"""A release is checked without unpacking it: every changed byte is named, what is hostile is refused in one line."""

import hashlib
import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from draftledger.errors import CorruptError
from draftledger.provenance import archive
from draftledger.provenance.archive import members, verify_archive
from draftledger.provenance.graph import read_graph
from draftledger.provenance.packed import open_release
from releases import Desk
from tars import ZEROS, contents, extended, header, member, rewrite

ROUNDS = "results/decode/lora/seed1-launch0/rounds.parquet"
MEMORY = 200_000_000  # bytes of address space: Python itself takes a good part


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Return a release that holds everything; it must not be changed."""
    folder = tmp_path_factory.mktemp("desk")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        desk = Desk(folder)
        assert desk.release(level="full") == 0
    return desk.archive


def states(path: Path, **options) -> dict[str, str]:
    """Return the state of everything that is not ok."""
    return {found.path: found.state for found in verify_archive(path, **options) if found.state != "ok"}


def refusal(path: Path) -> str:
    """Return why a release is refused, in one short line."""
    (found,) = verify_archive(path)
    assert (found.path, found.state) == (str(path), "altered")
    assert found.reason.startswith("refused: ")
    assert found.reason.isprintable()
    assert len(found.reason) < 250
    return found.reason.removeprefix("refused: ")


def written(folder: Path, *parts: bytes, end=ZEROS) -> Path:
    """Write a tar of these parts."""
    path = folder / "x.tar"
    path.write_bytes(b"".join(parts) + end)
    return path


# --- honest ones -----------------------------------------------------------------------------------------------------


def test_a_release_as_written_is_ok(made):
    assert states(made) == {}
    assert len(verify_archive(made)) == len(members(made))


def test_the_root_digest_is_compared(made, tmp_path):
    root = made.stem.rpartition("-")[2]
    assert hashlib.sha256(contents(made)["results/SHA256SUMS"]).hexdigest() == root
    assert states(made, expect=root) == {}
    assert states(made, expect="0" * 64) == {"results/SHA256SUMS": "altered"}
    (found,) = verify_archive(made, expect=root.upper())
    assert "lower-case" in found.reason
    renamed = shutil.copy(made, tmp_path / made.name.replace(root, "0" * 64))
    assert states(renamed) == {"results/SHA256SUMS": "altered"}


def test_every_file_in_which_a_byte_is_flipped_is_named(made, tmp_path):
    data = made.read_bytes()
    for name, place in members(made).items():
        changed = bytearray(data)
        changed[place.offset + place.size // 2] ^= 1
        path = tmp_path / made.name
        path.write_bytes(changed)
        found = {finding.path: finding for finding in verify_archive(path) if finding.state != "ok"}
        # The two lists speak for the others: a damaged one may accuse a file, or be refused.
        named = name in found or any(name in finding.reason for finding in found.values())
        assert named, name
        if not name.endswith("SHA256SUMS") and name != "release.json":
            assert {path: finding.state for path, finding in found.items()} == {name: "altered"}


def test_a_file_left_out_or_added(made, tmp_path):
    path = tmp_path / "x.tar"
    assert states(rewrite(made, path, {ROUNDS: None}, sums=False)) == {ROUNDS: "missing"}
    assert states(rewrite(made, path, {ROUNDS: None})) == {ROUNDS: "missing"}
    assert states(rewrite(made, path, {"extra.txt": b"x"}, sums=False)) == {"extra.txt": "unexplained"}
    assert states(rewrite(made, path, {"results/extra.txt": b"x"})) == {"results/extra.txt": "unexplained"}
    assert states(rewrite(made, path, {ROUNDS: b"other"})) == {ROUNDS: "altered"}


def test_what_is_left_out_is_absent_and_a_record_never_is(made, tmp_path):
    names = (ROUNDS, f"{ROUNDS}.recipe.json")
    record = json.loads(contents(made)["release.json"]) | {"left_out": dict.fromkeys(names, "why")}
    path = rewrite(made, tmp_path / "x.tar", {**dict.fromkeys(names), "release.json": json.dumps(record).encode()})
    assert states(path) == {ROUNDS: "absent", f"{ROUNDS}.recipe.json": "missing"}


def relisted(made: Path, target: Path, changes: dict[str, bytes]) -> Path:
    """Rewrite files, the ledger and the record, as one would who wants to pass: only the root digest moves."""
    lines = contents(made)["results/SHA256SUMS"].decode().splitlines()
    for name, data in changes.items():
        role = name.removeprefix("results/")
        lines = [hashlib.sha256(data).hexdigest() + line[64:] if line[66:] == role else line for line in lines]
    ledger = "".join(f"{line}\n" for line in lines).encode()
    record = json.loads(contents(made)["release.json"]) | {"root_digest": hashlib.sha256(ledger).hexdigest()}
    more = {"results/SHA256SUMS": ledger, "release.json": json.dumps(record).encode()}
    return rewrite(made, target, changes | more)


@pytest.mark.parametrize(
    ("suffix", "change", "state"),
    [
        (".manifest.json", {"schema": 2}, "altered"),
        (".manifest.json", {"sha256": "A" * 64}, "altered"),
        (".manifest.json", {"bytes": 1}, "altered"),
        (".recipe.json", {"schema": 2}, "altered"),
        (".recipe.json", {"code": "d" * 64}, "altered"),
        (".recipe.json", {"inputs": 3}, "altered"),
    ],
)
def test_a_record_that_the_ledger_covers_must_still_be_true(made, tmp_path, suffix, change, state):
    name = ROUNDS + suffix
    fields = json.loads(contents(made)[name]) | change
    assert states(relisted(made, tmp_path / "x.tar", {name: json.dumps(fields).encode()})) == {name: state}


def test_what_was_made_from_something_else_is_stale(made, tmp_path):
    name = f"{ROUNDS}.manifest.json"
    fields = json.loads(contents(made)[name]) | {"content": "d" * 64}
    found = states(relisted(made, tmp_path / "x.tar", {name: json.dumps(fields).encode()}))
    assert found == {"results/summary.parquet": "stale"}
    found = states(rewrite(made, tmp_path / "x.tar", {"config/decision.yaml": b"rules: 2\n"}))
    assert found == {"results/summary.parquet": "stale"}


def test_an_input_that_is_not_packed_is_absent(made, tmp_path):
    found = states(rewrite(made, tmp_path / "x.tar", {"config/prompts/p.jsonl": None}))
    assert list(found.values()) == ["absent"]


# --- what is refused -------------------------------------------------------------------------------------------------

LONG = "top/" + "a" * 2000
HOSTILE = {
    "leads out": member("top/../../x"),
    "dot": member("top/./x"),
    "absolute": member("/top/x"),
    "no name": member(""),
    "backslash": member("top\\x"),
    "drive": member("C:x/y"),
    "terminal escape": member("top/\x1b[2J"),
    "right to left": member("top/\u202etxt.exe"),
    "not UTF-8": member(b"top/\xff"),
    "too long a name": extended(("path", LONG)) + member("top/x"),
    "too deep": member(f"top/{'a/' * 20}x"),
    "hard link": header("top/x", kind=b"1"),
    "symbolic link": header("top/x", kind=b"2"),
    "character device": header("top/x", kind=b"3"),
    "block device": header("top/x", kind=b"4"),
    "folder": header("top/", kind=b"5"),
    "pipe": header("top/x", kind=b"6"),
    "sparse": member("top/x", kind=b"S"),
    "GNU long name": member("top/x", kind=b"L"),
    "global header": member("top/x", kind=b"g"),
    "GNU format": member("top/x", magic=b"ustar  \0"),
    "set-user-ID": member("top/x", mode=0o4755),
    "set-group-ID": member("top/x", mode=0o2755),
    "twice": member("top/x") * 2,
    "case": member("top/x") + member("top/X"),
    "case of a folder": member("top/a/x") + member("top/A/y"),
    "composed": member("top/\u00e9") + member("top/e\u0301"),
    "compatible": member("top/\ufb01x") + member("top/fix"),
    "sharp s": member("top/stra\u00dfe") + member("top/STRASSE"),
    "file as folder": member("top/x") + member("top/x/y"),
    "folder as file": member("top/x/y") + member("top/x"),
    "two tops": member("top/x") + member("other/x"),
    "no top": member("x"),
    "size beyond the end": header("top/x", 10**9),
    "size in base 256": header("top/x", b"\x80" + bytes(7) + b"\xff" * 4),
    "negative size": header("top/x", b"-0000000001\0"),
    "PAX size beyond the end": extended(("size", str(2**62))) + member("top/x"),
    "PAX size that is huge": extended(("size", "9" * 10000)) + member("top/x"),
    "PAX size that is none": extended(("size", "-1")) + member("top/x"),
    "PAX header that claims 8 GiB": extended(("path", "top/x"), stated=2**33 - 1) + member("top/x"),
    "PAX header of its own size": header("PaxHeader", 5, kind=b"x") + b"99 a\n".ljust(512, b"\0") + member("top/x"),
    "PAX sparse": extended(("GNU.sparse.major", "1")) + member("top/x"),
    "PAX link": extended(("linkpath", "/etc/passwd")) + member("top/x"),
    "PAX twice": extended(("path", "top/x")) * 2 + member("top/x"),
    "PAX alone": member("top/x") + extended(("path", "top/y")),
    "PAX path that leads out": extended(("path", "../x")) + member("top/x"),
    "false checksum": bytes([member("top/x")[0] ^ 1]) + member("top/x")[1:],
    "nothing": b"",
    "not a tar": b"PK\x03\x04" + bytes(600),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_hostile_is_refused_in_one_line(tmp_path, kind):
    path = written(tmp_path, member("top/SHA256SUMS"), HOSTILE[kind]) if HOSTILE[kind] else written(tmp_path)
    refusal(path)
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(CorruptError, match="refused"):
        open_release(path)


def test_the_builder_of_hostile_files_can_also_build_a_safe_one(tmp_path):
    long = f"top/{'a' * 200}"
    path = written(tmp_path, extended(("path", long), ("size", "1")), header("y", 0), b"x".ljust(512, b"\0"))
    assert {name: item.size for name, item in members(path).items()} == {"a" * 200: 1}


def test_a_cut_release_is_refused_wherever_it_is_cut(made, tmp_path):
    data = made.read_bytes()
    ends = [item.offset + item.size for item in members(made).values()]
    for cut in (0, 100, 512, *ends[::5], max(ends), max(ends) + 600, len(data) - 10240):
        path = tmp_path / "x.tar"
        path.write_bytes(data[:cut])
        refusal(path)


@pytest.mark.parametrize("more", [b"x", b"x".rjust(512, b"\0"), bytes(1 << 21), member("top/late")])
def test_what_follows_the_end_is_refused(made, tmp_path, more):
    path = tmp_path / "x.tar"
    path.write_bytes(made.read_bytes() + more)
    refusal(path)


def test_no_file_a_folder_and_too_many_members_are_refused(made, tmp_path, monkeypatch):
    refusal(tmp_path / "none.tar")
    refusal(tmp_path)
    monkeypatch.setattr(archive, "MOST_MEMBERS", 3)
    assert "more than 3" in refusal(made)


NESTED = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "changes",
    [
        {"SHA256SUMS": None},
        {"release.json": None},
        {"release.json": b'{"schema": 2}'},
        {"release.json": NESTED},
        {"release.json": b"[]"},
        {"release.json": b"\xff"},
        {"results/SHA256SUMS": None},
        {"results/SHA256SUMS": b"A" * 64 + b"  x\n"},
        {"results/SHA256SUMS": b"a" * 64 + b"  ../x\n"},
        {"results/SHA256SUMS": b"a" * 64 + b"  x\n" + b"b" * 64 + b"  x\n"},
        {"SHA256SUMS": b"\xff\n"},
        {"SHA256SUMS": b""},
    ],
    ids=str,
)
def test_lists_that_cannot_be_read_are_refused(made, tmp_path, changes):
    changes = {name: data and data[:200_000] for name, data in changes.items()}
    refusal(rewrite(made, tmp_path / "x.tar", changes, sums="SHA256SUMS" not in changes))


def test_upper_case_digests_are_refused(made, tmp_path):
    sums = contents(made)["SHA256SUMS"].decode()
    path = rewrite(made, tmp_path / "x.tar", {"SHA256SUMS": sums.upper().encode()}, sums=False)
    assert "lower-case" in refusal(path)


@pytest.mark.parametrize(
    "data", [NESTED, b"[]", b"{}", b"\xff", b'{"schema": 1, "key": NaN}', b'{"schema": ' + b"9" * 5000 + b"}"]
)
@pytest.mark.parametrize("suffix", [".manifest.json", ".recipe.json"])
def test_a_record_that_cannot_be_read_is_named(made, tmp_path, suffix, data):
    assert states(relisted(made, tmp_path / "x.tar", {ROUNDS + suffix: data})) == {ROUNDS + suffix: "altered"}


# --- alone, and within bounds ----------------------------------------------------------------------------------------


def alone(path: Path, *options: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a copy of the checker by itself, without site packages and with little memory."""
    script = shutil.copy(archive.__file__, folder / "check.py")
    return subprocess.run(
        [sys.executable, "-I", "-S", str(script), str(path), *options],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )


def test_a_stranger_needs_one_file_and_python(made, tmp_path):
    done = alone(made, folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{len(members(made))} ok\n", "")
    done = alone(made, "--expect", "0" * 64, folder=tmp_path)
    assert done.returncode == 1
    assert done.stdout.startswith("altered: results/SHA256SUMS: its sha256 is ")


def test_memory_is_bounded_whatever_an_archive_claims(tmp_path):
    bombs = {
        "header": header("PaxHeader", 2**32, kind=b"x"),
        "sums": header("top/SHA256SUMS", 2**32),
    }
    for name, start in bombs.items():
        path = tmp_path / f"{name}.tar"
        with open(path, "wb") as file:  # sparse: the bytes that it claims are there
            file.write(start)
            file.truncate(2**32 + 4096)
        done = alone(path, folder=tmp_path)
        assert (done.returncode, done.stderr) == (1, ""), name
        assert done.stdout.count("\n") == 2


# --- reading on ------------------------------------------------------------------------------------------------------


def test_a_release_reads_like_a_folder_of_results(made):
    packed = open_release(made)
    folder = made.parents[1]
    assert packed.read("summary.parquet") == (folder / "summary.parquet").read_bytes()
    graph = read_graph(packed)
    assert graph.artefacts["report.html"].recipe
    assert all(artefact.here for artefact in graph.artefacts.values())


def test_a_damaged_or_absent_file_of_a_release_is_not_read(made, tmp_path):
    packed = open_release(rewrite(made, tmp_path / "x.tar", {"results/report.html": b"<b>"}, sums=False))
    with pytest.raises(CorruptError, match="differs from SHA256SUMS"):
        packed.read("report.html")
    with pytest.raises(CorruptError, match="its level leaves it out"):
        packed.read("none")
