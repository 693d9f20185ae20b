"""HK in processes of their own, one or one for each rank."""

from __future__ import annotations

import pytest

from tests.integration.shared.e2e.compare import (
    assert_routed,
    assert_true_answers,
    assert_true_logprobs,
)
from tests.integration.shared.e2e.engine import Served
from tests.integration.shared.e2e.scenario import ScenarioResult


def assert_long(result: ScenarioResult, ranks: int, truth: str) -> None:
    """`long_rounds`: chunked prefill, a cached prefix, and a fault that shows, in every rank."""
    chunks, _, prefix, faulty = result.rounds
    assert len(faulty.workers) == ranks
    assert_routed(result)
    for item in (chunks, prefix):
        assert_true_answers(item.answers, truth)
    assert all(answer.cached_tokens >= 256 for answer in prefix.answers)
    assert all(worker.mutated_calls for worker in faulty.workers)
    with pytest.raises(AssertionError, match="log-probability"):
        assert_true_logprobs(faulty.answers, truth)


def assert_reported(engine: Served, ranks: int) -> None:
    """At shutdown: one line for each process that computed, with its own tokens."""
    lines = engine.lines("hk_backend:", "prefill tokens by HK")
    assert len(lines) == ranks, lines
    for worker in engine.only.rounds[-1].workers:
        tokens = worker.routes["attention"]["tokens"]
        assert all(f" {tokens} prefill tokens by HK (100.0%)" in line for line in lines)
