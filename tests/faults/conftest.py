"""The jobs that the faults strike, and places for them to run in."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from onejob import Site, commands, site


@pytest.fixture(scope="session")
def calls(finished) -> dict[str, list[str]]:
    """Return every job's command line."""
    return commands(finished)


@pytest.fixture
def sites(finished, calls, tmp_path) -> Callable[..., Site]:
    """Return a maker of fresh sites for the job of that output."""
    numbers = itertools.count()

    def make(output: str, *, folder: Path | None = None, store: Path | None = None) -> Site:
        return site(finished, calls[output], folder or tmp_path / f"site{next(numbers)}", store=store)

    return make
