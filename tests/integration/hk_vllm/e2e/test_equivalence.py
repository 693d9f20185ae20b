"""HK serves what stock vLLM and transformers serve, and it was HK that computed it."""

from __future__ import annotations

import pytest

from tests.integration.hk_vllm.e2e.catalogue import FAULTY, FLOAT32, HALF, Case
from tests.integration.shared.e2e.engine import Checkpoint, Engines
from tests.integration.shared.e2e.equivalence import (
    assert_as_near,
    assert_equal,
    assert_faults_show,
)
from tests.integration.shared.e2e.scenario import ScenarioResult


@pytest.mark.engine_proof
@pytest.mark.parametrize("case", FLOAT32, ids=str)
def test_float32(case: Case, hk: Engines, stock: Engines, checkpoint: Checkpoint) -> None:
    """Equal greedy tokens, log-probabilities within 1e-3 of both."""
    found, expected = hk[str(case)], stock[str(case)]
    assert_traffic(case, found)
    assert_traffic(case, expected)
    truth = checkpoint(case.model)
    assert_equal(case.scenario(truth).rounds, found, expected, truth)


@pytest.mark.held
@pytest.mark.engine_proof
@pytest.mark.parametrize("case", HALF, ids=str)
def test_half_precision(case: Case, hk: Engines, stock: Engines, checkpoint: Checkpoint) -> None:
    """As near to float32 as stock vLLM is in the same precision, on the same traffic."""
    found, expected = hk[str(case)], stock[str(case)]
    assert_traffic(case, found)
    assert_as_near(found, expected, checkpoint(case.model))


@pytest.mark.engine_proof
@pytest.mark.parametrize("case", FAULTY, ids=str)
def test_faults_are_caught(case: Case, hk: Engines, stock: Engines, checkpoint: Checkpoint) -> None:
    """A small fault in HK's attention fails the log-probability check that a healthy one passes."""
    found, expected = hk[str(case)], stock[str(case.healthy())]
    truth = checkpoint(case.model)
    assert_faults_show(case, case.scenario(truth).rounds, found, expected, truth)


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
