"""HK serves what stock vLLM and transformers serve, and it was HK that computed it."""

from __future__ import annotations

import pytest

from tests.integration.hk_vllm.e2e.catalogue import FAULTY, FLOAT32, HALF, Case
from tests.integration.hk_vllm.e2e.processes import Checkpoint, Reader
from tests.integration.shared.e2e.compare import (
    assert_not_loaded,
    assert_routed,
    assert_same_answers,
    assert_true_answers,
    assert_true_logprobs,
)
from tests.integration.shared.e2e.rounding import assert_as_exact, error_of
from tests.integration.shared.e2e.scenario import ScenarioResult


@pytest.mark.engine("stock", "hk")
@pytest.mark.parametrize("case", FLOAT32, ids=str)
def test_float32(case: Case, served: Reader, checkpoint: Checkpoint) -> None:
    """Equal greedy tokens, log-probabilities within 1e-3 of both."""
    found, expected = served("hk")[str(case)], served("stock")[str(case)]
    assert_not_loaded(expected)
    assert_routed(found)
    assert_traffic(case, found)
    assert_traffic(case, expected)
    for ours, theirs in zip(found.rounds, expected.rounds, strict=True):
        assert_same_answers(ours.answers, theirs.answers)
        assert_true_answers(ours.answers, checkpoint(case.model))


@pytest.mark.held
@pytest.mark.engine("stock", "hk")
@pytest.mark.parametrize("case", HALF, ids=str)
def test_half_precision(case: Case, served: Reader, checkpoint: Checkpoint) -> None:
    """As near to float32 as stock vLLM is in the same precision, on the same traffic."""
    found, expected = served("hk")[str(case)], served("stock")[str(case)]
    assert_not_loaded(expected)
    assert_routed(found)
    assert_traffic(case, found)
    truth = checkpoint(case.model)
    assert_as_exact(error_of(found.rounds, truth), error_of(expected.rounds, truth))


@pytest.mark.engine("stock", "hk")
@pytest.mark.parametrize("case", FAULTY, ids=str)
def test_faults_are_caught(case: Case, served: Reader, checkpoint: Checkpoint) -> None:
    """A small fault in HK's attention fails the log-probability check that a healthy one passes."""
    found, truth = served("hk")[str(case)], checkpoint(case.model)
    stock = served("stock")[str(case.healthy())]
    assert_routed(found)
    before = found.start[0].mutated_calls
    for item, asked in zip(found.rounds, case.scenario(truth).rounds, strict=True):
        mutated_calls = item.workers[0].mutated_calls - before
        before += mutated_calls
        if not asked.mutation:
            assert_true_answers(item.answers, truth)
            continue
        assert mutated_calls > 0, f"{asked.mutation} never ran"
        if case.dtype == "float32":
            with pytest.raises(AssertionError, match="log-probability"):
                assert_true_logprobs(item.answers, truth)
        else:
            with pytest.raises(AssertionError, match="error"):
                assert_as_exact(error_of([item], truth), error_of(stock.rounds, truth))


def assert_traffic(case: Case, result: ScenarioResult) -> None:
    """The engine met what the case is there for."""
    last = result.rounds[-1]
    batches = last.batches
    assert batches is not None
    if case.kind == "whole":
        assert any(batch.fresh > 1 for batch in batches), batches
        assert not any(batch.extends for batch in batches), batches
    if case.kind == "chunked":
        assert any(b.decodes and b.extends and b.fresh for b in batches), batches
    if case.kind == "prefix":
        assert all(answer.cached_tokens >= 256 for answer in last.answers)
        assert any(batch.extends > 1 for batch in batches), batches
    if case.kind == "preempted":
        assert last.preemptions > 0
