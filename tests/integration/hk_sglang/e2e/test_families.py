"""Other models than Llamas: what each family has of its own is in HK's answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.hk_sglang.e2e.families import FAMILIES, Family
from tests.integration.shared.e2e.compare import (
    assert_routed,
    assert_true_answers,
    assert_true_logprobs,
)
from tests.integration.shared.e2e.engine import Reader

pytestmark = pytest.mark.engine_proof


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_float32(family: Family, served: Reader, folder: Path) -> None:
    """Chunks and a cached prefix as transformers has them, all of the prefill by HK; the same model
    without what makes the family differs."""
    result = served(str(family)).only
    assert_routed(result)
    linear = result.rounds[-1].workers[0].routes["linear"]
    assert linear["layers"] > 0
    assert (linear["layers_left"], linear["fallbacks"]) == (family.left, {})
    for item in result.rounds:
        assert_true_answers(item.answers, str(family.checkpoint(folder)))
    assert all(answer.cached_tokens >= 256 for answer in result.rounds[-1].answers)
    for lack in family.without:
        with pytest.raises(AssertionError, match="log-probability"):
            assert_true_logprobs(result.rounds[0].answers, str(family.lacking(lack, folder)))
