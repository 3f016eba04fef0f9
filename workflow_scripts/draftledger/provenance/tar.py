"""Write a tar archive whose bytes depend on names and contents alone."""

import tarfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

FIXED_TIME = 315_532_800  # 1980-01-01: tools take earlier times for a fault


def write_tar(path: Path, files: Mapping[str, Path | bytes], *, top: str) -> None:
    """Write files, bytes or paths by name, under one top folder: sorted, mode 0644, no owner, one time, PAX."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, source in sorted(files.items()):
            member = tarfile.TarInfo(f"{top}/{name}")
            member.mode, member.mtime = 0o644, FIXED_TIME
            member.size = len(source) if isinstance(source, bytes) else source.stat().st_size
            with BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as content:
                archive.addfile(member, content)
