"""Bind MLX to a fast BLAS before any test imports it; one finished run, and cheap copies of it to edit."""

import os
import shutil

import pytest

from draftledger.models import blas
from workspace import ROOT, Workspace, checkout


def pytest_configure() -> None:
    """Bind MLX, and keep it from calling a C++ compiler."""
    os.environ["MLX_DISABLE_COMPILE"] = "1"
    for path in blas.candidates()[:1]:
        blas.load_blas(path, threads=blas.physical_cores())


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Workspace:
    """Return a checkout in which nano, or what `DRAFTLEDGER_TRIGGERS` names, has run; it must not be changed."""
    experiment = os.environ.get("DRAFTLEDGER_TRIGGERS", "nano")
    workspace = checkout(ROOT, tmp_path_factory.mktemp("finished"), experiment)
    workspace.run("-j2")
    return workspace


@pytest.fixture
def clone(finished, tmp_path) -> Workspace:
    """Return a checkout of the finished run's sources, without results."""
    return checkout(finished.folder, tmp_path, finished.experiment)


@pytest.fixture
def work(finished, tmp_path) -> Workspace:
    """Return a copy of the finished run, time stamps kept, to edit."""
    shutil.copytree(finished.folder, tmp_path / "work", symlinks=True)
    return Workspace(tmp_path / "work", finished.experiment)
