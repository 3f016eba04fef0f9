"""Bind MLX to a fast BLAS before any test imports it, and keep it from calling a C++ compiler."""

import os

from draftledger.models import blas


def pytest_configure() -> None:
    os.environ["MLX_DISABLE_COMPILE"] = "1"
    for path in blas.candidates()[:1]:
        blas.load_blas(path, threads=blas.physical_cores())
