"""HK serves what transformers and SGLang's own plain attention serve, and it was HK that computed
it."""

from __future__ import annotations

import pytest

from tests.integration.hk_sglang.e2e.catalogue import FLOAT32, HALF, Case
from tests.integration.shared.e2e.case import assert_as_near, assert_equal, assert_met
from tests.integration.shared.e2e.engine import Checkpoint, Reader
from tests.integration.shared.e2e.scenario import ScenarioResult

pytestmark = pytest.mark.engine_proof

KINDS = {"whole": ("whole", "prefix"), "retracted": ("preempted",)}
"""What a kind of traffic is there for, if not for chunks."""


def answered(case: Case, served: Reader) -> ScenarioResult:
    """With HK, which met the traffic."""
    found = served(f"hk-{case}").only
    for kind in KINDS.get(case.kind, ("chunked",)):
        assert_met(kind, found)
    return found


@pytest.mark.parametrize("case", FLOAT32, ids=str)
def test_float32(case: Case, served: Reader, checkpoint: Checkpoint) -> None:
    tokens_only = 0 if case.kind in KINDS else 1
    assert_equal(answered(case, served), checkpoint(case.model), tokens_only)


@pytest.mark.held
@pytest.mark.parametrize("case", HALF, ids=str)
def test_half_precision(case: Case, served: Reader, checkpoint: Checkpoint) -> None:
    stock = served(f"stock-{case}").only
    assert_as_near(answered(case, served), stock, checkpoint(case.model))
