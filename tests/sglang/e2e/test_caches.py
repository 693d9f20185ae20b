"""A KV cache narrower than the model: HK's answers are those of SGLang's own attention over the
same cache, and not those over a wide one."""

from __future__ import annotations

import pytest

from tests.e2e.compare import (
    assert_not_loaded,
    assert_routed,
    assert_same_answers,
    assert_true_logprobs,
)
from tests.sglang.e2e.conftest import Checkpoint, Reader

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
        assert_same_answers(ours.answers, theirs.answers)
    with pytest.raises(AssertionError, match="log-probability"):
        assert_true_logprobs(found.rounds[0].answers, checkpoint("tiny-64"))
    with pytest.raises(AssertionError):
        assert_same_answers(faulty[0].answers, faulty[1].answers)
