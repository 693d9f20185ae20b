"""Bounds on the errors of answers in half precision, and on the differences of two answers.

Errors of log-probabilities have heavy tails. One token may move by ten times the mean, in any right
engine, so no bound on a single one proves anything. The checks compare figures over all tokens
whose chance is known. A right engine fails by chance at most once in some 30,000 comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.integration.shared.e2e.compare import comparable
from tests.integration.shared.e2e.oracle import Cache, score
from tests.integration.shared.e2e.scenario import RoundResult, ScenarioResult

SIGMAS = 4
CHANCE = 3.2e-5
"""The chance that a normal variable is `SIGMAS` standard deviations or more above its mean."""


@dataclass(frozen=True)
class Errors:
    """The magnitudes of errors, one for each log-probability."""

    values: Any

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float:
        """The standard deviation of one error."""
        return float(np.std(self.values))

    @property
    def largest(self) -> float:
        return float(np.max(self.values))

    @staticmethod
    def between(pairs: Any) -> Errors:
        """The errors of pairs of log-probabilities."""
        found, expected = np.array(list(pairs), dtype=float).T
        return Errors(np.abs(found - expected))


def error_of(rounds: list[RoundResult], checkpoint: str, cache: Cache | None = None) -> Errors:
    """Distance to transformers in float32, which scores the engine's own tokens, over `cache`.

    Rounds that asked for tokens only are left out.
    """
    pairs: list[tuple[float, float]] = []
    for answer in (answer for item in rounds for answer in item.answers if answer.logprobs):
        truth = score(checkpoint, answer, cache=cache)
        pairs += zip(answer.logprobs, truth.logprobs, strict=True)
        pairs += zip(answer.prompt_logprobs, truth.prompt_logprobs, strict=True)
    return Errors.between(pairs)


def assert_as_exact(found: Errors, stock: Errors) -> None:
    """Hold that rounding is no worse than the stock engine's own in the same precision.

    If both round alike, their errors are draws of one distribution. Then the means of n and m
    errors differ by sqrt(1/n + 1/m) of one error's standard deviation, which is taken from stock
    alone. The chance that all k largest errors are found's is (n / (n + m))^k, whatever the
    distribution. This shows a fault of few tokens.
    """
    allowed = stock.mean + SIGMAS * stock.deviation * (1 / found.count + 1 / stock.count) ** 0.5
    assert found.mean <= allowed, (  # a NaN fails, too
        f"mean error {found.mean:.5f}, stock has {stock.mean:.5f}, at most {allowed:.5f} by chance"
    )
    beyond = int(np.sum(found.values > stock.largest))
    share = found.count / (found.count + stock.count)
    assert share**beyond > CHANCE, (
        f"{beyond} errors beyond {stock.largest:.5f}, the largest error that stock has"
    )


def assert_agree(
    found: list[RoundResult],
    other: list[RoundResult],
    checkpoint: str,
    cache: Cache | None = None,
) -> None:
    """Hold that two devices in half precision agree on the same prompts, within rounding.

    The rounding is that of `other`, measured against transformers in float32 over `cache`: `found`
    has no part in its own bound.
    """
    assert_within(found, other, error_of(other, checkpoint, cache))


def assert_within(found: list[RoundResult], other: list[RoundResult], noise: Errors) -> None:
    """Hold that two answers to the same prompts agree, if each is off by like noise."""
    assert_differ_by_noise(
        Errors.between(
            pair
            for ours, theirs in zip(found, other, strict=True)
            for answer, expected in zip(ours.answers, theirs.answers, strict=True)
            for pair in comparable(answer, expected)
        ),
        noise,
    )


def assert_differ_by_noise(differences: Errors, noise: Errors) -> None:
    """Hold that two answers differ by no more than like noise in each.

    The noises are independent and of either sign. Noises of magnitude a and b differ by a + b or |a
    - b|, on average by max(a, b). The mean difference is the mean of that over all pairs. The mean
    square is twice that of the noise.
    """
    larger = np.maximum.outer(noise.values, noise.values)
    expected = float(larger.mean())
    sampled = (2 * float(np.mean(noise.values**2)) - expected**2) / differences.count
    estimated = 4 * float(larger.mean(axis=1).var()) / noise.count  # a variance over pairs
    allowed = expected + SIGMAS * (sampled + estimated) ** 0.5
    assert differences.mean <= allowed, (
        f"mean error {differences.mean:.5f} between the two, rounding gives {expected:.5f}, "
        f"at most {allowed:.5f} by chance"
    )


def assert_same_numbers(
    found: ScenarioResult, other: ScenarioResult, checkpoint: str, cache: Cache | None = None
) -> None:
    """Hold that `found` is as near to the truth as `other`, and to `other` as rounding allows."""
    errors, others = (error_of(result.rounds, checkpoint, cache) for result in (found, other))
    assert_as_exact(errors, others)
    assert_agree(found.rounds, other.rounds, checkpoint, cache)
