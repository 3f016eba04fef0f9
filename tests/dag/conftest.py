"""One full nano run, and cheap copies of it to edit."""

import os
import shutil
from pathlib import Path

import pytest

from workspace import Workspace

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("Snakefile", "rules", "config", "envs", "profiles", "workflow_scripts")


def checkout(root: Path, folder: Path) -> Workspace:
    """Copy the sources as a fresh clone has them: nothing built, every time stamp of now."""
    for name in SOURCES:
        if (root / name).is_dir():
            shutil.copytree(root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(root / name, folder / name)
    for path in folder.rglob("*"):
        os.utime(path)
    return Workspace(folder)


@pytest.fixture
def clone(finished, tmp_path) -> Workspace:
    """Return a checkout of the finished run's sources, without results."""
    return checkout(finished.folder, tmp_path)


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Workspace:
    """Return a checkout in which nano has run to the end; it must not be changed."""
    workspace = checkout(ROOT, tmp_path_factory.mktemp("finished"))
    workspace.run("-j2")
    return workspace


@pytest.fixture
def work(finished, tmp_path) -> Workspace:
    """Return a copy of the finished run, time stamps kept, to edit."""
    shutil.copytree(finished.folder, tmp_path / "work", symlinks=True)
    return Workspace(tmp_path / "work")
