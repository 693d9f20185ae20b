"""HK serves what a stock engine and transformers serve, and it was HK that computed it."""

from __future__ import annotations

import pytest

from tests.integration.shared.e2e.case import Case
from tests.integration.shared.e2e.compare import (
    assert_not_loaded,
    assert_routed,
    assert_same_answers,
    assert_true_answers,
    assert_true_logprobs,
    assert_true_tokens,
)
from tests.integration.shared.e2e.rounding import assert_as_exact, error_of
from tests.integration.shared.e2e.scenario import Round, ScenarioResult


def assert_equal(
    asked: list[Round], found: ScenarioResult, stock: ScenarioResult, truth: str
) -> None:
    """In float32: equal greedy tokens, log-probabilities within 1e-3 of both."""
    assert_not_loaded(stock)
    assert_routed(found)
    for item, ours, theirs in zip(asked, found.rounds, stock.rounds, strict=True):
        assert_same_answers(ours.answers, theirs.answers)
        (assert_true_tokens if item.tokens_only else assert_true_answers)(ours.answers, truth)


def assert_as_near(found: ScenarioResult, stock: ScenarioResult, truth: str) -> None:
    """In half precision: as near to float32 as stock is in the same, on the same traffic."""
    assert_not_loaded(stock)
    assert_routed(found)
    assert_as_exact(error_of(found.rounds, truth), error_of(stock.rounds, truth))


def assert_faults_show(
    case: Case, asked: list[Round], found: ScenarioResult, stock: ScenarioResult, truth: str
) -> None:
    """A small fault in HK's attention fails the check that a healthy round passes."""
    assert_routed(found)
    before = found.start[0].mutated_calls
    for item, answered in zip(asked, found.rounds, strict=True):
        mutated_calls = answered.workers[0].mutated_calls - before
        before += mutated_calls
        if not item.mutation:
            assert_true_answers(answered.answers, truth)
            continue
        assert mutated_calls > 0, f"{item.mutation} never ran"
        if case.dtype == "float32":
            with pytest.raises(AssertionError, match="log-probability"):
                assert_true_logprobs(answered.answers, truth)
        else:
            with pytest.raises(AssertionError, match="error"):
                assert_as_exact(error_of([answered], truth), error_of(stock.rounds, truth))
