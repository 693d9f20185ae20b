"""HK serves what SGLang's own plain attention and transformers serve, and it was HK that computed
it."""

from __future__ import annotations

import pytest

from tests.integration.hk_sglang.e2e.catalogue import FAULTY, FLOAT32, HALF, Case
from tests.integration.hk_sglang.e2e.conftest import Checkpoint, Reader
from tests.integration.shared.e2e.compare import (
    assert_not_loaded,
    assert_routed,
    assert_same_answers,
    assert_true_answers,
    assert_true_logprobs,
    assert_true_tokens,
)
from tests.integration.shared.e2e.rounding import assert_as_exact, error_of
from tests.integration.shared.e2e.scenario import ScenarioResult


@pytest.mark.parametrize("case", FLOAT32, ids=str)
def test_float32(case: Case, served: Reader, checkpoint: Checkpoint) -> None:
    """Equal greedy tokens, log-probabilities within 1e-3 of both."""
    found, expected = served(f"hk-{case}").only, served(f"stock-{case.healthy()}").only
    assert_not_loaded(expected)
    assert_routed(found)
    assert_traffic(case, found)
    assert_traffic(case, expected)
    truth = checkpoint(case.model)
    for asked, ours, theirs in zip(
        case.hk(truth).rounds, found.rounds, expected.rounds, strict=True
    ):
        assert_same_answers(ours.answers, theirs.answers)
        (assert_true_tokens if asked.tokens_only else assert_true_answers)(ours.answers, truth)


@pytest.mark.held
@pytest.mark.parametrize("case", HALF, ids=str)
def test_half_precision(case: Case, served: Reader, checkpoint: Checkpoint) -> None:
    """As near to float32 as stock SGLang is in the same precision, on the same traffic."""
    found, expected = served(f"hk-{case}").only, served(f"stock-{case.healthy()}").only
    assert_not_loaded(expected)
    assert_routed(found)
    assert_traffic(case, found)
    truth = checkpoint(case.model)
    assert_as_exact(error_of(found.rounds, truth), error_of(expected.rounds, truth))


@pytest.mark.parametrize("case", FAULTY, ids=str)
def test_faults_are_caught(case: Case, served: Reader, checkpoint: Checkpoint) -> None:
    """A small fault in HK's attention fails the log-probability check that a healthy one passes."""
    found, truth = served(f"hk-{case}").only, checkpoint(case.model)
    stock = served(f"stock-{case.healthy()}").only
    assert_routed(found)
    before = 0
    for item, asked in zip(found.rounds, case.hk(truth).rounds, strict=True):
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
    steps = [item.batches or [] for item in result.rounds]
    if case.kind == "whole":
        fresh, _, extended = steps
        assert any(batch.fresh > 1 for batch in fresh), fresh
        assert not any(batch.extends for batch in fresh), fresh
        assert all(answer.cached_tokens >= 256 for answer in result.rounds[-1].answers)
        assert any(batch.extends > 1 for batch in extended), extended
    elif case.kind == "retracted":
        assert result.rounds[-1].preemptions > 0
    else:
        scored, mixed = steps
        assert any(batch.extends and batch.fresh for batch in scored), scored
        assert any(batch.decodes and batch.extends and batch.fresh for batch in mixed), mixed
