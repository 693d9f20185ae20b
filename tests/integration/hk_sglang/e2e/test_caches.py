"""A KV cache narrower than the model: HK's answers are those of SGLang's own attention over the
same cache, and not those over a wide one."""

from __future__ import annotations

import pytest

from tests.integration.hk_sglang.e2e.conftest import Checkpoint, Reader
from tests.integration.shared.e2e.compare import (
    LOGPROB_TOLERANCE,
    assert_not_loaded,
    assert_routed,
    assert_true_logprobs,
    comparable,
)
from tests.integration.shared.e2e.scenario import Answer

DTYPES = ("fp8_e4m3", "fp8_e5m2")


@pytest.mark.engine(*(f"{dtype}-{side}" for dtype in DTYPES for side in ("hk", "stock")))
@pytest.mark.parametrize("dtype", DTYPES)
def test_fp8(dtype: str, served: Reader, checkpoint: Checkpoint) -> None:
    """Chunked prefill and a cached prefix over FP8; then a fault that shows."""
    found, expected = served(f"{dtype}-hk").only, served(f"{dtype}-stock").only
    assert_not_loaded(expected)
    assert_routed(found)
    *healthy, faulty = zip(found.rounds, expected.rounds, strict=True)
    for ours, theirs in healthy:
        assert_same_but_for_codes(ours.answers, theirs.answers)
    with pytest.raises(AssertionError, match="log-probability"):
        assert_true_logprobs(found.rounds[0].answers, checkpoint("tiny-64"))
    with pytest.raises(AssertionError, match="rms difference"):
        assert_same_but_for_codes(faulty[0].answers, faulty[1].answers)


def assert_same_but_for_codes(answers: list[Answer], expected: list[Answer]) -> None:
    """Log-probabilities within `LOGPROB_TOLERANCE` as a root mean square, and equal tokens.

    Where a key lies between two codes, the rounding error of a float32 sum decides which it gets:
    that moves the few scores that depend on this key by more.
    """
    differences = [
        found - other
        for answer, theirs in zip(answers, expected, strict=True)
        for found, other in comparable(answer, theirs)
    ]
    rms = (sum(value**2 for value in differences) / len(differences)) ** 0.5
    assert rms <= LOGPROB_TOLERANCE, f"rms difference {rms:.5f}"
    assert [answer.tokens for answer in answers] == [theirs.tokens for theirs in expected]
