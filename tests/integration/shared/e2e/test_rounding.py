"""The statistics that engines are judged by: rounding passes them, whatever its tails; faults do
not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.integration.shared.e2e.rounding import Errors, assert_as_exact, assert_differ_by_noise

COUNT = 600
SEEDS = range(50)
Draws = Any


def normal(random: np.random.Generator, count: int = COUNT) -> Draws:
    return random.normal(size=count)


def heavy(random: np.random.Generator, count: int = COUNT) -> Draws:
    """Tokens of very different certainty: in 600 errors the largest is some 13 times the mean."""
    return random.normal(size=count) * random.lognormal(sigma=0.9, size=count)


def errors(values: Draws) -> Errors:
    return Errors(np.abs(values))


@pytest.mark.parametrize("rounding", [normal, heavy])
@pytest.mark.parametrize("count", [COUNT, COUNT // 4])
def test_rounding_passes_and_an_error_in_every_token_does_not(rounding: Any, count: int) -> None:
    """Also where one side answered less. An error half as large again as rounding is seen; between
    two answers, which both round, one of three times it."""
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        found, stock, fault = rounding(random, count), rounding(random), rounding(random, count)
        same = stock[:count]
        assert_as_exact(errors(found), errors(stock))
        assert_differ_by_noise(errors(found - same), errors(stock))
        if count < COUNT:
            continue
        with pytest.raises(AssertionError, match=r"mean error .* stock has"):
            assert_as_exact(errors(found + 1.5 * fault), errors(stock))
        with pytest.raises(AssertionError, match=r"mean error .* between the two"):
            assert_differ_by_noise(errors(found + 3 * fault - same), errors(stock))
