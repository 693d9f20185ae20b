"""Where HK cannot serve, vLLM does, and one line says why."""

from __future__ import annotations

import pytest

from tests.integration.shared.e2e.engine import Checkpoint, Reader
from tests.integration.shared.e2e.singles import WORDS, assert_checked, assert_serves_and_says_why

pytestmark = pytest.mark.engine_proof

REASONS = {
    **WORDS,
    "engine-unknown": ["AttentionMetadataBuilder.build", "shared_prefix", "common_prefix_len"],
    "parent-unknown": ["CPUAttentionMetadataBuilder.build", "prefix", "common_prefix_len"],
}


@pytest.mark.parametrize("name", REASONS)
def test_serves_and_says_why(name: str, served: Reader, checkpoint: Checkpoint) -> None:
    assert_serves_and_says_why(name, REASONS[name], served(name), checkpoint("tiny-64"))


def test_strict_refuses_to_start(served: Reader) -> None:
    """HK_STRICT=1: a layer that would fall back is an error that says why."""
    error = served("strict").error
    assert "HK_STRICT=1" in error
    assert "hk_backend._cpu cannot be loaded" in error


def test_shadow_check(served: Reader, checkpoint: Checkpoint) -> None:
    process = served("checked")
    assert_checked(process, checkpoint("tiny-64"), "ERROR")
    linear = process.only.rounds[-1].workers[0].routes["linear"]
    assert linear["on"]
    assert linear["checked_calls"] == linear["calls"] + linear["dummy_calls"] > 0
    assert 0 < linear["max_check_error"] < 1e-5
