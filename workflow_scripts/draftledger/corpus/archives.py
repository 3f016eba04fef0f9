"""Fetches a pinned Python archive and reads its members as a stream; nothing is unpacked or installed."""

import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from stat import S_IFMT, S_ISDIR, S_ISREG

from draftledger.errors import SourceError
from draftledger.provenance.digest import file_digest

PIP_SECONDS = 120
LARGEST_MEMBER = 16 * 2**20
BROKEN = (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, RuntimeError)
PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--no-deps", "--require-hashes")
Wanted = Callable[[str], bool]


def download(package: str, *, digest: str, form: str, folder: Path) -> Path:
    """Fetch the archive of `name==version` with pip and return its path; a file that is there is used again.

    `form` is `wheel` (pure Python only, so that every machine reads the same archive) or `sdist` (pip runs
    the build back end for its metadata, but only after the digest was found right).

    Raises:
        SourceError: the pin is not complete, there is no network, or the digest differs.
    """
    name, _, version = package.partition("==")
    if not (name and version and len(digest) == 64 and set(digest) <= set("0123456789abcdef")):
        raise SourceError(f"corpus package {package!r}: write name==version and a sha256 of 64 hex digits")
    place = folder / digest
    place.mkdir(parents=True, exist_ok=True)
    if (path := _with_digest(place, digest)) is None:
        _run_pip(package, digest=digest, form=form, place=place)
        path = _with_digest(place, digest)
    if path is None:
        raise SourceError(f"{package}: the download does not have the pinned sha256 {digest}")
    return path


def read_members(path: Path, wanted: Wanted) -> dict[str, bytes]:
    """Return name → bytes of the files that `wanted` accepts; the folder around a tar's content is left out.

    Raises:
        SourceError: any member is a link or a device, leads out of the archive, or comes twice; a wanted one
            is larger than 16 MiB; the archive is damaged or cut short.
    """
    found: dict[str, bytes] = {}
    try:
        files = _zip_files if zipfile.is_zipfile(path) else _tar_files
        for name, content in files(path, wanted):
            if name in found:
                raise SourceError(f"{path.name}: member {name!r} comes twice; the archive is refused")
            found[name] = content
    except BROKEN as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SourceError(f"{path.name}: the archive is damaged or cut short ({reason})") from error
    return found


def _with_digest(folder: Path, digest: str) -> Path | None:
    files = (path for path in sorted(folder.iterdir()) if path.is_file())
    return next((path for path in files if file_digest(path) == digest), None)


def _run_pip(package: str, *, digest: str, form: str, place: Path) -> None:
    pinned = place / "pinned.txt"
    pinned.write_text(f"{package} --hash=sha256:{digest}\n", encoding="utf-8")
    options = {
        "wheel": ["--only-binary=:all:", "--platform=any", "--abi=none"],
        "sdist": [f"--no-binary={package.partition('==')[0]}"],
    }[form]
    command = [sys.executable, *PIP, *options, f"--dest={place}", f"--requirement={pinned}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"{package}: no download within {PIP_SECONDS} s; check the network") from error
    if done.returncode:
        raise SourceError(f"{package}: cannot be downloaded ({_reason(done.stderr)})")


def _reason(stderr: str) -> str:
    if "DO NOT MATCH THE HASHES" in stderr:
        return "the archive does not have the pinned sha256"
    lines = [line.strip() for line in stderr.splitlines() if line.strip()] or ["pip said nothing"]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return f"{(errors or lines)[-1][:200]}; check the name, the version and the network"


def _zip_files(path: Path, wanted: Wanted) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            mode = info.external_attr >> 16
            plain = S_IFMT(mode) == 0 or S_ISREG(mode) or S_ISDIR(mode)
            _refuse_unsafe(info.filename, plain=plain, path=path)
            if not info.is_dir() and wanted(info.filename):
                _refuse_large(info.filename, size=info.file_size, path=path)
                yield info.filename, archive.read(info)


def _tar_files(path: Path, wanted: Wanted) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path, mode="r|*") as archive:
        for member in archive:
            _refuse_unsafe(member.name, plain=member.isreg() or member.isdir(), path=path)
            name = member.name.partition("/")[2]
            if member.isreg() and wanted(name):
                _refuse_large(name, size=member.size, path=path)
                content = archive.extractfile(member)
                yield name, content.read() if content else b""


def _refuse_unsafe(name: str, *, plain: bool, path: Path) -> None:
    inside = PurePosixPath(name)
    if not plain:
        raise SourceError(f"{path.name}: member {name!r} is a link or a device; the archive is refused")
    if inside.is_absolute() or ".." in inside.parts or "\\" in name:
        raise SourceError(f"{path.name}: member {name!r} leads out of the archive; the archive is refused")


def _refuse_large(name: str, *, size: int, path: Path) -> None:
    if size > LARGEST_MEMBER:
        raise SourceError(f"{path.name}: member {name!r} has {size} bytes, more than {LARGEST_MEMBER}; exclude it")
