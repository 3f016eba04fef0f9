"""Coverage of the crossed interval, and proof that this test can fail."""

import pytest

from draftledger.statistics.coverage import coverage, nested_coverage

MIXES = [(0.0, 0.1, 0.03), (0.03, 0.1, 0.03), (0.03, 0.3, 0.02), (0.1, 0.1, 0.1), (0.1, 0.0, 0.03)]
STUDY = {"replicates": 4000, "key": 7}


def sds(mix: tuple[float, float, float]) -> dict[str, float]:
    return dict(zip(("seed_sd", "prompt_sd", "residual_sd"), mix, strict=True))


@pytest.mark.parametrize("mix", [*MIXES, (0.1, 0.03, 0.03), (0.02, 0.05, 0.1)])
@pytest.mark.parametrize("prompts", [9, 12, 27])
def test_five_seeds_cover_as_promised(mix: tuple[float, float, float], prompts: int) -> None:
    assert 0.93 <= coverage(5, prompts, **sds(mix), **STUDY) <= 0.97


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("prompts", [9, 12])
def test_three_seeds_cover_at_least_93_per_cent(mix: tuple[float, float, float], prompts: int) -> None:
    assert coverage(3, prompts, **sds(mix), **STUDY) >= 0.93


@pytest.mark.parametrize("prompts", [12, 27])
def test_three_seeds_are_weakest_where_seeds_hold_most_of_the_variance(prompts: int) -> None:
    assert 0.92 <= coverage(3, prompts, **sds((0.1, 0.03, 0.03)), **STUDY) <= 0.95


def test_pure_residual_noise_is_covered_too_often_rather_than_too_seldom() -> None:
    assert 0.95 <= coverage(3, 12, **sds((0.0, 0.0, 0.1)), **STUDY) <= 0.985


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("seeds", [3, 5])
def test_a_nested_bootstrap_does_not_cover(seeds: int, mix: tuple[float, float, float]) -> None:
    assert nested_coverage(seeds, 12, **sds(mix), replicates=400, key=7) < 0.9


def test_the_same_key_gives_the_same_share() -> None:
    assert coverage(3, 4, **sds(MIXES[1]), **STUDY) == coverage(3, 4, **sds(MIXES[1]), **STUDY)
