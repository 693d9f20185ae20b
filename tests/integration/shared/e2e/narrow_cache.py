"""Checks of answers over an FP8 KV cache.

The truth is transformers, with its keys and values rounded to the same codes. The answers must
differ from truths with a fault.

Two right engines may round a key or value differently, if it lies between two codes and nearer to
their middle than a float32 sum is exact. Codes are some 2^-3 of a value apart, and such sums are
exact to some 2^-22. A token of `tiny_llama` has 768 keys and values, so one token in some hundreds
has such a code. It moves the scores of the tokens that attend to it, by up to 0.05, and hardly
those of distant tokens. So a score that moved proves nothing. But moved scores are few, while a
fault of the cache or of the attention over it moves every token. So the median of all errors is
held to `LOGPROB_TOLERANCE`.
"""

from __future__ import annotations

import numpy as np
import torch

from tests.float8 import saturated
from tests.integration.shared.e2e.compare import LOGPROB_TOLERANCE
from tests.integration.shared.e2e.oracle import Cache, Stored, score
from tests.integration.shared.e2e.scenario import Answer


def stored(dtype: torch.dtype, scale: float = 1.0) -> Stored:
    """The nearest codes of `dtype` in units of `scale`; what is too large becomes the largest."""
    return lambda x: saturated(x / scale, dtype).float() * scale


def faulty(dtype: torch.dtype) -> dict[str, Cache]:
    """Caches that are read or written a little wrong."""
    right = stored(dtype)

    def next_code(x: torch.Tensor) -> torch.Tensor:
        return (saturated(x, dtype).view(torch.uint8) + 1).view(dtype).float()

    def neighbour(x: torch.Tensor) -> torch.Tensor:
        return right(x.roll(1, dims=2))

    wrongs: dict[str, Stored] = {
        "read with a scale 2% too large": lambda x: 1.02 * right(x),
        "of the token before": neighbour,
        "one code off": next_code,
        "not rounded": lambda x: x,
    }
    return {
        f"{side} {fault}": Cache(*((wrong, right) if side == "keys" else (right, wrong)))
        for side in ("keys", "values")
        for fault, wrong in wrongs.items()
    }


def assert_over(dtype: torch.dtype, answers: list[Answer], checkpoint: str) -> None:
    """Hold that the answers are those of attention over codes of `dtype`."""
    right = stored(dtype)
    assert_scores_of(Cache(right, right), answers, checkpoint)


def assert_faults_seen(dtype: torch.dtype, answers: list[Answer], checkpoint: str) -> None:
    """Hold that the answers are not those of a faulty cache."""
    for fault, cache in faulty(dtype).items():
        try:
            assert_scores_of(cache, answers, checkpoint)
        except AssertionError as error:
            assert "median error" in str(error)  # noqa: PT017
        else:
            raise AssertionError(f"{fault}: not seen")


def assert_scores_of(cache: Cache, answers: list[Answer], checkpoint: str) -> None:
    """Hold that the median error of all tokens is within `LOGPROB_TOLERANCE`.

    Generated tokens may on average be less likely than the best by as much.
    """
    errors: list[float] = []
    regrets: list[float] = []
    for answer in answers:
        truth = score(checkpoint, answer, cache=cache)
        found = answer.logprobs + answer.prompt_logprobs
        expected = truth.logprobs + truth.prompt_logprobs
        errors += [abs(a - b) for a, b in zip(found, expected, strict=True)]
        regrets += truth.regrets
    median, regret = float(np.median(errors)), float(np.mean(regrets))
    assert median <= LOGPROB_TOLERANCE, f"median error {median:.5f}"
    assert regret <= LOGPROB_TOLERANCE, f"generated tokens {regret:.5f} below the best"
