"""HK split over ranks, in spawned processes, and over caches of other forms."""

from __future__ import annotations

import pytest

from tests.integration.hk_sglang.e2e.conftest import Checkpoint, Reader
from tests.integration.shared.e2e.compare import (
    assert_routed,
    assert_true_answers,
    assert_true_logprobs,
)


@pytest.mark.engine("tensor-parallel", "hnd")
@pytest.mark.parametrize(("name", "ranks"), [("tensor-parallel", 2), ("hnd", 1)])
def test_long(name: str, ranks: int, served: Reader, checkpoint: Checkpoint) -> None:
    """Chunked prefill, a cached prefix, and a fault that shows, in every rank."""
    result = served(name).only
    chunks, _, prefix, faulty = result.rounds
    assert len(faulty.workers) == ranks
    assert_routed(result)
    for item in (chunks, prefix):
        assert_true_answers(item.answers, checkpoint("tiny-64"))
    assert all(answer.cached_tokens >= 256 for answer in prefix.answers)
    assert all(worker.mutated_calls for worker in faulty.workers)
    with pytest.raises(AssertionError, match="log-probability"):
        assert_true_logprobs(faulty.answers, checkpoint("tiny-64"))


@pytest.mark.engine("tensor-parallel", "hnd")
@pytest.mark.parametrize(("name", "ranks"), [("tensor-parallel", 2), ("hnd", 1)])
def test_report_at_shutdown(name: str, ranks: int, served: Reader) -> None:
    """One line for each process that computed, with its own tokens."""
    lines = served(name).lines("hk_backend:", "prefill tokens by HK")
    assert len(lines) == ranks, lines
    for worker in served(name).only.rounds[-1].workers:
        tokens = worker.routes["attention"]["tokens"]
        assert all(f" {tokens} prefill tokens by HK (100.0%)" in line for line in lines)
