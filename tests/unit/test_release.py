"""Equal results make equal archives; a release holds what its level and licences allow, and says what it leaves out."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from draftledger.corpus.document import Document
from draftledger.plan import Plan
from draftledger.provenance.archive import verify_archive
from draftledger.provenance.checkout import checkout
from draftledger.provenance.packing import level_of
from draftledger.provenance.release import with_archive
from draftledger.provenance.verify import verify
from forge import table
from releases import AROUND, CLEAN, DOCUMENTS, Desk
from tars import contents

PAGE = Path(__file__).resolve().parents[2] / "docs" / "release.md"
ADAPTER = "results/adapters/lora/seed1-launch0/adapter.safetensors"
MODEL = "results/model/model.safetensors"
CORPUS = "results/corpus/documents.parquet"
HUB = {"kind": "hub", "repo": "a/b", "revision": "0" * 40}


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """Return a checkout with results, in which the test works."""
    monkeypatch.chdir(tmp_path)
    return Desk(tmp_path)


def left_out(desk) -> dict[str, str]:
    return json.loads(contents(desk.archive)["release.json"])["left_out"]


def refused(desk, capsys, **options) -> str:
    """Return why no release is made; nothing may have been written."""
    assert desk.release(**options) == 1
    assert not (desk.home.folder / "release").exists()
    (line,) = capsys.readouterr().err.splitlines()
    return line.removeprefix("draftledger: error: ")


# --- bytes -----------------------------------------------------------------------------------------------------------


@contextmanager
def somewhere(folder: Path, *, mask: int, zone: str) -> Iterator[Path]:
    """Work in a new folder under another umask and time zone."""
    folder.mkdir()
    old = os.umask(mask)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setenv("TZ", zone)
            time.tzset()
            yield folder
    finally:
        os.umask(old)
        time.tzset()


def test_equal_inputs_make_equal_bytes(tmp_path):
    """Another folder, umask, time zone and time of the files do not count."""
    made = []
    for age, (mask, zone) in enumerate([(0o022, "UTC"), (0o077, "Asia/Kathmandu")]):
        with somewhere(tmp_path / str(age), mask=mask, zone=zone) as folder:
            desk = Desk(folder)
            for path in folder.rglob("*"):
                os.utime(path, (age * 10**6,) * 2)
            assert desk.release(level="full") == 0
            assert desk.release(level="full", code="e" * 64) == 0  # a new recipe: packed again
            made.append(desk.archive)
    assert made[0].name == made[1].name
    assert made[0].read_bytes() == made[1].read_bytes()
    with tarfile.open(made[0]) as archive:
        assert archive.getnames() == sorted(archive.getnames())
        shared = {(item.uid, item.gid, item.uname, item.gname, item.mode, item.mtime) for item in archive}
    assert shared == {(0, 0, "", "", 0o644, 315_532_800)}


def test_the_name_carries_version_and_root_digest_and_the_record_names_it(desk):
    assert desk.release(version="1.2") == 0
    record = json.loads((desk.home.folder / "release" / "1.2.json").read_text())
    assert record["archive"] == desk.archive.name == f"1.2-{record['root_digest']}.tar"
    assert (record["commit"], record["dirty"], record["level"]) == (CLEAN["commit"], [], "rows")
    inside = json.loads(contents(desk.archive)["release.json"])
    assert inside == {key: record[key] for key in record.keys() - {"archive", "sha256", "sums"}}
    assert verify(desk.home.folder, base=desk.folder).faults == []  # releases lie beside the results, not in them


def test_other_results_are_another_release(desk):
    assert desk.release() == 0
    first = desk.archive
    desk.home.add("report.html", "<p></p>", rule="report", reads=["summary.parquet"])
    desk.home.ledger()
    assert desk.release() == 0
    assert len(list(first.parent.glob("*.tar"))) == 2


def test_the_archive_is_an_output_only_once_the_ledger_is_there(desk):
    assert with_archive(["--help"]) == ["--help"]
    call = ["--input", "results/none/SHA256SUMS", "--output", "r/1.json", "r/1.json.manifest.json"]
    assert with_archive(call) == call


@pytest.mark.parametrize("tool", [["sha256sum"], ["shasum", "-a", "256"]], ids=["sha256sum", "shasum"])
def test_standard_tools_check_an_unpacked_release(desk, tool):
    assert desk.release() == 0
    with tarfile.open(desk.archive) as archive:
        archive.extractall(desk.folder / "out", filter="data")
    top = desk.folder / "out" / "nano-1.0"
    try:
        done = subprocess.run([*tool, "-c", "SHA256SUMS"], cwd=top, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip(f"{tool[0]} is not installed")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(": OK\n") == len(contents(desk.archive)) - 1
    found = verify(top / "results", base=top)
    assert found.faults == []
    assert found.counts["absent"] == len(left_out(desk))


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="sha256sum is not installed")
def test_the_commands_of_the_page_check_a_release(desk):
    assert desk.release(level="full") == 0
    section = PAGE.read_text().split("## Check one by hand")[1].split("\n## ")[0]
    unpack, read, manifest = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    root = desk.archive.stem.rpartition("-")[2]
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": tools, "RELEASE": str(desk.archive), "ROOT_DIGEST": root}

    def told(script, folder):
        command = ["sh", "-eu", "-c", script]
        return subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout

    lines = told(unpack + manifest, desk.folder).splitlines()
    assert all(line.endswith(": OK") for line in lines[:-3])
    assert lines[-3:] == [f"{root}  results/SHA256SUMS", "payload True", "recipe True"]
    assert told(read, PAGE.parents[1]).splitlines() == [f"{len(contents(desk.archive))} ok"] * 2


# --- what is in it ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "without"), [("rows", {ADAPTER, MODEL, CORPUS}), ("adapters", {MODEL, CORPUS}), ("full", set())]
)
def test_a_level_leaves_out_payloads_never_what_explains_them(desk, level, without):
    assert desk.release(level=level) == 0
    found = contents(desk.archive)
    assert set(left_out(desk)) == without
    assert without.isdisjoint(found)
    assert {ADAPTER, MODEL, CORPUS} - without <= found.keys()
    for path in (ADAPTER, MODEL, CORPUS, "results/SHA256SUMS"):
        assert {f"{path}.manifest.json", f"{path}.recipe.json"} <= found.keys()
    around = {"README.md", "config.json", "CITATION.cff", "LICENSE", "config/decision.yaml", "config/prompts/p.jsonl"}
    assert around <= found.keys()
    assert "envs/cpu-py311.txt" in found
    assert "envs/metal-py311.txt" not in found
    states = {item.path for item in verify_archive(desk.archive) if item.state == "absent"}
    assert states == without


@pytest.mark.parametrize(
    ("role", "level"),
    [
        ("summary.parquet", "rows"),
        ("figures/speedup.svg", "rows"),
        ("timing/seed1-launch0/session1.cost.parquet", "rows"),
        ("adapters/lora/seed1-launch0/history.parquet", "rows"),
        ("teacher/train-0000.bounds.parquet", "rows"),
        ("windows/overlap.parquet", "rows"),
        ("adapters/lora/published/adapter.safetensors", "adapters"),
        ("teacher/train-0000.safetensors", "full"),
        ("windows/train.parquet", "full"),
        ("model/tokenizer.json", "full"),
        ("something/new.parquet", "full"),
    ],
)
def test_the_level_of_a_payload(role, level):
    assert level_of(role) == level


def test_a_page_says_what_it_is(desk):
    assert desk.release(level="adapters") == 0
    page = contents(desk.archive)["README.md"].decode()
    assert "# draftledger: nano 1.0" in page
    assert f"- code: commit {CLEAN['commit']} of 2026-01-02\n" in page
    assert "2 files (a release of level adapters does not hold it)" in page


# --- the checkout ----------------------------------------------------------------------------------------------------


def test_a_dirty_checkout_is_refused_unless_told_and_then_said(desk, capsys):
    dirty = {**CLEAN, "dirty": [" M config/nano.yaml", "?? x.py"]}
    told = refused(desk, capsys, checkout=dirty)
    assert told == (
        "release: the checkout is dirty ( M config/nano.yaml and others); commit, or set release.allow_dirty: true"
    )
    assert desk.release(checkout=dirty, allow_dirty=True) == 0
    found = contents(desk.archive)
    assert json.loads(found["release.json"])["dirty"] == dirty["dirty"]
    assert "; **dirty**: 2 entries in `release.json`, first:  M config/nano.yaml\n" in found["README.md"].decode()


def test_what_version_control_says(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    unknown = checkout(tmp_path)
    assert (unknown["commit"], unknown["dirty"]) == (None, ["not under version control"])
    git("init")
    (tmp_path / ".gitignore").write_text("/results/\n")
    git("add", ".")
    git("commit", "-m", "x", "--date", "2026-01-02T03:04:05Z")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "x").touch()
    clean = checkout(tmp_path)
    assert len(clean["commit"]) == 40
    assert clean["dirty"] == []
    (tmp_path / "new.py").touch()
    (tmp_path / ".gitignore").write_text("/results\n")
    assert checkout(tmp_path)["dirty"] == [" M .gitignore", "?? new.py"]


# --- licences --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("licence", ["", " ", "NOASSERTION", "unknown", "None"])
def test_a_document_without_a_licence_is_refused(tmp_path, monkeypatch, capsys, licence):
    monkeypatch.chdir(tmp_path)
    desk = Desk(tmp_path, [*DOCUMENTS, Document("p==1/c.py", "four", "p==1", "sha256:00", licence)])
    assert refused(desk, capsys) == (
        "results/nano/corpus/documents.parquet: document 'p==1/c.py' states no licence; "
        "no release can hold what it is in"
    )


def test_every_licence_has_its_text(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    extra = [
        Document("q/1", "five", "q", "1", "CC-BY-SA-3.0"),
        Document("r/1", "six", "r", "1", "BSD-3-Clause", "Copyright r"),
    ]
    desk = Desk(tmp_path, [*DOCUMENTS, *extra])
    told = refused(desk, capsys)
    assert told == "q: no text of its licence CC-BY-SA-3.0; put it into config/licences/CC-BY-SA-3.0.txt"
    text = {"config/licences/CC-BY-SA-3.0.txt": "Share alike\n"}
    desk = Desk(tmp_path, [*DOCUMENTS, *extra], around={**AROUND, **text})
    assert desk.release() == 0
    found = {name: data.decode() for name, data in contents(desk.archive).items() if name.startswith("licences/")}
    assert found == {
        "licences/Apache-2.0.txt": "Apache text\n",
        "licences/BSD-3-Clause.txt": "Copyright p",
        "licences/BSD-3-Clause-1.txt": "Copyright r",
        "licences/CC-BY-SA-3.0.txt": "Share alike\n",
    }


@pytest.mark.parametrize("licence", [None, "CC-BY-NC-4.0", "LicenseRef-gemma", "MIT AND CC-BY-ND-4.0"])
def test_weights_that_may_not_be_passed_on_are_never_packed(desk, licence):
    target = HUB if licence is None else {**HUB, "licence": licence}
    text = {f"config/licences/{licence}.txt": "terms\n"}
    desk = Desk(desk.folder, around={**AROUND, **text})
    assert desk.release(level="full", config={"target": target}) == 0
    found = left_out(desk)
    assert set(found) == {MODEL, ADAPTER}  # what was trained from a target is under its terms
    assert set(found.values()) == {f"{licence or 'no licence'}: not known to allow passing it on"}
    assert {MODEL, ADAPTER}.isdisjoint(contents(desk.archive))


@pytest.mark.parametrize(("licence", "packed"), [("MIT", True), ("LicenseRef-x", False), (None, False)])
def test_a_published_drafter_is_under_its_own_licence(desk, licence, packed):
    adapter = {"path": "x"} if licence is None else {"path": "x", "licence": licence}
    config = {"drafters": {"lora": {"kind": "block_lora", "adapter": adapter}}}
    desk = Desk(desk.folder, around={**AROUND, "config/licences/MIT.txt": "MIT text\n"})
    assert desk.release(level="adapters", config=config) == 0
    found = contents(desk.archive)
    assert (ADAPTER in found) == packed
    assert ("licences/MIT.txt" in found) == packed


def test_a_corpus_that_may_not_be_passed_on_is_not_packed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    desk = Desk(tmp_path, [Document("q/1", "five", "q", "1", "CC-BY-NC-4.0", "No sale")])
    assert desk.release(level="full") == 0
    assert left_out(desk) == {CORPUS: "CC-BY-NC-4.0: not known to allow passing it on"}


def test_what_only_a_release_reads_is_in_no_recipe():
    config = yaml.safe_load((PAGE.parents[1] / "config" / "release-b.yaml").read_text())
    (name, drafter), *_ = config["drafters"].items()
    licensed = {**drafter, "adapter": {**drafter["adapter"], "licence": "MIT"}}
    target = {**config["target"], "licence": "MIT"}
    more = {
        **config,
        "release": {"level": "full"},
        "target": target,
        "drafters": {**config["drafters"], name: licensed},
    }
    before, after = Plan(config, PAGE.parents[1]), Plan(more, PAGE.parents[1])
    assert before.spec("model") == after.spec("model")
    assert before.spec("published", drafter=name) == after.spec("published", drafter=name)
    assert before.recipes() == after.recipes()
    assert after.release == {"level": "full", "version": "unreleased", "allow_dirty": False}


# --- faults ----------------------------------------------------------------------------------------------------------


def test_results_that_are_not_the_ledger_s_are_refused(desk, capsys):
    desk.home.add("decode/lora/seed1-launch0/rounds.parquet", table(x=[2]), reads=["environment.json"])
    assert "rounds.parquet: differs from SHA256SUMS; run the workflow to its end first" in refused(desk, capsys)


def test_a_release_that_would_fail_its_own_check_is_not_made(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    extra = [Document("q/1", "five", "q", "1", "MIT", "one"), Document("r/1", "six", "r", "1", "mit", "two")]
    desk = Desk(tmp_path, [*DOCUMENTS, *extra])
    assert "'nano-1.0/licences/mit.txt': collides with 'nano-1.0/licences/MIT.txt'" in refused(desk, capsys)


def test_a_changed_byte_is_refused(desk, capsys):
    path = desk.home.folder / "report.html"
    path.write_text("<html>/html>x")
    assert "report.html: differs from its manifest" in refused(desk, capsys)


def test_without_a_citation_there_is_no_release(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    desk = Desk(tmp_path, around={name: text for name, text in AROUND.items() if name != "CITATION.cff"})
    assert refused(desk, capsys).startswith("CITATION.cff: absent")


@pytest.mark.parametrize("text", ["[", "a: 1\n", "authors: 3\nversion: 1\n"])
def test_a_citation_that_says_nothing_is_refused(tmp_path, monkeypatch, capsys, text):
    monkeypatch.chdir(tmp_path)
    desk = Desk(tmp_path, around={**AROUND, "CITATION.cff": text})
    assert refused(desk, capsys).startswith("CITATION.cff: ")
