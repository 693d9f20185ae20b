"""A KV cache narrower than the model: HK's answers, and SGLang's own, are those of attention over
its codes, and not those over a wide one."""

from __future__ import annotations

import pytest
import torch

from tests.integration.shared.e2e.compare import (
    assert_not_loaded,
    assert_routed,
    assert_true_logprobs,
)
from tests.integration.shared.e2e.engine import Checkpoint, Reader
from tests.integration.shared.e2e.narrow_cache import assert_faults_seen, assert_over
from tests.integration.shared.e2e.scenario import Answer, RoundResult

pytestmark = pytest.mark.engine_proof

DTYPES = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


@pytest.mark.engine(*(f"{dtype}-{side}" for dtype in DTYPES for side in ("hk", "stock")))
@pytest.mark.parametrize("dtype", DTYPES)
def test_fp8(dtype: str, served: Reader, checkpoint: Checkpoint) -> None:
    """Chunked prefill and a cached prefix over FP8; then a fault that shows."""
    found, expected = served(f"{dtype}-hk").only, served(f"{dtype}-stock").only
    assert_not_loaded(expected)
    assert_routed(found)
    truth = checkpoint("tiny-64")
    for rounds in (found.rounds, expected.rounds):
        chunks, prefix, cached, _ = rounds
        assert all(answer.cached_tokens >= 256 for answer in cached.answers)
        assert_over(DTYPES[dtype], answers(chunks, prefix, cached), truth)
    chunks = found.rounds[0]
    assert_faults_seen(DTYPES[dtype], chunks.answers, truth)
    with pytest.raises(AssertionError, match="log-probability"):
        assert_true_logprobs(chunks.answers, truth)
    with pytest.raises(AssertionError, match="median error"):
        assert_over(DTYPES[dtype], answers(found.rounds[-1]), truth)


def answers(*rounds: RoundResult) -> list[Answer]:
    return [answer for item in rounds for answer in item.answers]
