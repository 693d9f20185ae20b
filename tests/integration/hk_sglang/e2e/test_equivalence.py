"""HK serves what SGLang's own plain attention and transformers serve, and it was HK that computed
it."""

from __future__ import annotations

import pytest

from tests.integration.hk_sglang.e2e.catalogue import FAULTY, FLOAT32, HALF, Case
from tests.integration.shared.e2e.engine import Checkpoint, Reader
from tests.integration.shared.e2e.equivalence import (
    assert_as_near,
    assert_equal,
    assert_faults_show,
)
from tests.integration.shared.e2e.scenario import ScenarioResult

pytestmark = pytest.mark.engine_proof


def answered(case: Case, served: Reader) -> tuple[ScenarioResult, ScenarioResult]:
    """With HK, and without it."""
    return served(f"hk-{case}").only, served(f"stock-{case.healthy()}").only


@pytest.mark.parametrize("case", FLOAT32, ids=str)
def test_float32(case: Case, served: Reader, checkpoint: Checkpoint) -> None:
    """Equal greedy tokens, log-probabilities within 1e-3 of both."""
    found, stock = answered(case, served)
    assert_traffic(case, found)
    assert_traffic(case, stock)
    truth = checkpoint(case.model)
    assert_equal(case.hk(truth).rounds, found, stock, truth)


@pytest.mark.held
@pytest.mark.parametrize("case", HALF, ids=str)
def test_half_precision(case: Case, served: Reader, checkpoint: Checkpoint) -> None:
    """As near to float32 as stock SGLang is in the same precision, on the same traffic."""
    found, stock = answered(case, served)
    assert_traffic(case, found)
    assert_as_near(found, stock, checkpoint(case.model))


@pytest.mark.parametrize("case", FAULTY, ids=str)
def test_faults_are_caught(case: Case, served: Reader, checkpoint: Checkpoint) -> None:
    """A small fault in HK's attention fails the log-probability check that a healthy one passes."""
    truth = checkpoint(case.model)
    assert_faults_show(case, case.hk(truth).rounds, *answered(case, served), truth)


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
