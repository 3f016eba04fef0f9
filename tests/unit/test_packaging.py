"""Locks, conda files and metadata are complete, and no tracked file names a host or a path of one machine."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ENVS = ROOT / "envs"
LOCKS = sorted(path for path in ENVS.glob("*.txt"))
CONDA = sorted(ENVS.glob("*.yaml"))
KINDS = ("cpu", "cpu-aarch64", "cuda13", "cuda13-aarch64", "metal")
PIN = re.compile(r"^([a-z0-9._-]+)==\S+( ; .+)? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")
# Registries by length and sha256 of their host names, so that this file does not name what it looks for.
HOSTS = {
    (8, "a4aa2ac280bb8d1a0ce7a1be5a7bfb10292b49fe9435ad5cff19f421f3c70e41"),
    (16, "8b5bb5eb9d758455b8635855cf8aaf05b68775e3f83f0291e800ef338fb9783c"),
    (12, "51c6b9f69c48a75b146d2785c3d70d336d5fdce24868f2e22db377d736f2ef24"),
    (9, "8743857e3ea00fd1c64bbc68b8af241954ad2c285e7a60340eec7ea5dcb200db"),
}
HOST_END = re.compile(r"(?<=\w)\.org")
FOLDERS = ["/".join(("", name, "")) for name in ("root", "home", "Users", "work")]


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)


def pins(lock: Path) -> dict[str, int]:
    """Each pinned package and its number of hashes; any other line fails."""
    found: dict[str, int] = {}
    name = ""
    for line in lock.read_text(encoding="utf-8").splitlines():
        if match := PIN.match(line):
            name = match[1]
            found[name] = 0
        else:
            assert HASH.match(line), f"{lock.name}: {line!r} is neither a pin nor a hash"
            found[name] += 1
    return found


def choose(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ENVS / "choose.py")],
        cwd=ROOT,
        env={"PATH": "", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_there_is_a_lock_for_every_kind_and_python() -> None:
    expected = {f"{kind}-py3{minor}.txt" for kind in KINDS for minor in (11, 12, 13)}
    assert {lock.name for lock in LOCKS} == expected | {"bootstrap.txt"}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_is_only_pins_with_hashes(lock: Path) -> None:
    found = pins(lock)
    assert found
    assert all(found.values())


@pytest.mark.parametrize("lock", [path for path in LOCKS if path.stem != "bootstrap"], ids=lambda lock: lock.stem)
def test_a_lock_holds_one_back_end(lock: Path) -> None:
    back_ends = {"mlx-cpu": "cpu", "mlx-cuda-13": "cuda13", "mlx-metal": "metal"}
    present = {kind for name, kind in back_ends.items() if name in pins(lock)}
    assert present == {lock.stem.split("-")[0]}


def test_uv_lock_is_ignored() -> None:
    assert git("check-ignore", "--quiet", "uv.lock").returncode == 0


@pytest.mark.parametrize("conda", CONDA, ids=lambda conda: conda.stem)
def test_a_conda_file_leads_to_a_lock(conda: Path) -> None:
    python = next(text for text in yaml.safe_load(conda.read_text())["dependencies"] if text.startswith("python"))
    minor = re.fullmatch(r"python =3\.(\d+)", python)
    assert minor
    assert (ENVS / f"{conda.stem}-py3{minor[1]}.txt").is_file()
    assert f"DRAFTLEDGER_BACKEND={conda.stem} " in conda.with_suffix(".post-deploy.sh").read_text()


@pytest.mark.skipif(platform.system() != "Linux", reason="what macOS may ask for differs")
@pytest.mark.parametrize("backend", ["cpu", "cuda13"])
def test_the_chosen_lock_exists(backend: str) -> None:
    chosen = choose(DRAFTLEDGER_BACKEND=backend)
    assert (ROOT / chosen.stdout.strip()).is_file()
    assert Path(chosen.stdout.strip()).name.startswith(backend)


def test_an_unknown_back_end_is_one_clear_line() -> None:
    refused = choose(DRAFTLEDGER_BACKEND="abacus")
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert "abacus" in refused.stderr


def test_the_citation_is_complete() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    assert citation["license"] == "Apache-2.0"
    assert f'version = "{citation["version"]}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def registries(text: str) -> list[str]:
    """Every place of a text that is the name of a registry's host, also inside a longer word."""
    places = [(match.end() - length, match.end(), seal) for match in HOST_END.finditer(text) for length, seal in HOSTS]
    return [text[a:b] for a, b, seal in places if a >= 0 and sha256(text[a:b].encode()).hexdigest() == seal]


def test_no_file_names_a_registry_or_a_machine_path() -> None:
    banned = re.compile("|".join(rf"(?<![\w.}}>]){folder}\w" for folder in FOLDERS))
    listed = git("ls-files", "--cached", "--others", "--exclude-standard", "-z").stdout.split("\0")
    paths = [ROOT / name for name in listed if name and (ROOT / name).is_file()]
    assert paths
    hits = []
    for path in paths:
        text = path.read_bytes()
        if b"\0" not in text:
            found = [match.group() for match in banned.finditer(text.decode("utf-8"))]
            hits += [f"{path.relative_to(ROOT)}: {hit}" for hit in [*found, *registries(text.decode("utf-8"))]]
    assert hits == []
