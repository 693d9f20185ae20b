"""HK serves what transformers and stock vLLM serve, and it was HK that computed it."""

from __future__ import annotations

import pytest

from tests.integration.hk_vllm.e2e.catalogue import FLOAT32, HALF
from tests.integration.shared.e2e.case import Case, assert_as_near, assert_equal, assert_met
from tests.integration.shared.e2e.engine import Checkpoint, Engines


@pytest.mark.engine_proof
@pytest.mark.parametrize("case", FLOAT32, ids=str)
def test_float32(case: Case, hk: Engines, checkpoint: Checkpoint) -> None:
    """`--attention-backend CUSTOM` means the platform's own choice, wrapped."""
    assert_met(case.kind.replace("custom", "whole"), hk[str(case)])
    assert_equal(hk[str(case)], checkpoint(case.model))


@pytest.mark.held
@pytest.mark.engine_proof
@pytest.mark.parametrize("case", HALF, ids=str)
def test_half_precision(case: Case, hk: Engines, stock: Engines, checkpoint: Checkpoint) -> None:
    assert_met(case.kind, hk[str(case)])
    assert_as_near(hk[str(case)], stock[str(case)], checkpoint(case.model))
