"""Where HK cannot serve, vLLM does, and one line says why."""

from __future__ import annotations

import pytest

from tests.integration.shared.e2e.engine import Checkpoint, Reader
from tests.integration.shared.e2e.refusals import *  # noqa: F403
from tests.integration.shared.e2e.refusals import (
    REFUSALS,
    assert_checked,
    assert_serves_and_says_why,
)

REASONS = {
    **{name: each.words for name, each in REFUSALS.items()},
    "engine-unknown": ["AttentionMetadataBuilder.build", "shared_prefix", "common_prefix_len"],
    "parent-unknown": ["CPUAttentionMetadataBuilder.build", "prefix", "common_prefix_len"],
}


@pytest.mark.engine_proof
@pytest.mark.parametrize("name", REASONS)
def test_serves_and_says_why(name: str, served: Reader, checkpoint: Checkpoint) -> None:
    assert_serves_and_says_why(name, REASONS[name], served(name), checkpoint("tiny-64"))


@pytest.mark.engine_proof
def test_strict_refuses_to_start(served: Reader) -> None:
    """HK_STRICT=1: a layer that would fall back is an error that says why."""
    error = served("strict").error
    assert "HK_STRICT=1" in error
    assert "hk_backend._cpu cannot be loaded" in error


@pytest.mark.engine_proof
def test_shadow_check(served: Reader, checkpoint: Checkpoint) -> None:
    """HK_CHECK=1: a healthy kernel passes; a faulty one is caught before its output is used."""
    process = served("checked")
    assert_checked(process, checkpoint("tiny-64"))
    linear = process.only.rounds[-1].workers[0].routes["linear"]
    assert linear["on"]
    assert linear["checked_calls"] == linear["calls"] + linear["dummy_calls"] > 0
    assert 0 < linear["max_check_error"] < 1e-5
    [line] = process.lines("ERROR", "HK_CHECK")
    assert "head size 64" in line
    assert "query lengths" in line
