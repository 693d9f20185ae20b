"""Where HK cannot serve, SGLang does, and one line says why."""

from __future__ import annotations

import pytest

from tests.integration.shared.e2e.engine import Checkpoint, Reader
from tests.integration.shared.e2e.refusals import *  # noqa: F403
from tests.integration.shared.e2e.refusals import (
    REFUSALS,
    assert_checked,
    assert_serves_and_says_why,
)

pytestmark = pytest.mark.engine_proof

REASONS = {
    "decode-flag": ["decode_attention_backend: HK computes prefill only, using SGLang's own"],
    "other-flag": ["the server's own choice of torch_native for prefill"],
    **{name: each.words for name, each in REFUSALS.items()},
    "engine-unknown": ["AttentionBackend.init_forward_metadata", "batch", "forward_batch"],
}


@pytest.mark.engine(*REASONS)
@pytest.mark.parametrize("name", REASONS)
def test_serves_and_says_why(name: str, served: Reader, checkpoint: Checkpoint) -> None:
    assert_serves_and_says_why(name, REASONS[name], served(name), checkpoint("tiny-64"))


@pytest.mark.engine("strict", "strict-bad-backend")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("strict", "hk_backend._cpu cannot be loaded"),
        ("strict-bad-backend", "HK_BACKEND='atention'"),
    ],
)
def test_strict_stops_the_engine(name: str, why: str, served: Reader) -> None:
    """HK_STRICT=1: what would fall back is an error that says why, though SGLang swallows those
    of plugins."""
    engine = served(name)
    assert engine.exit_code != 0 or engine.error
    assert engine.lines("HK_STRICT=1", why), engine.log


@pytest.mark.engine("checked")
def test_shadow_check(served: Reader, checkpoint: Checkpoint) -> None:
    """HK_CHECK=1: a healthy kernel passes; a faulty one is caught before its output is used."""
    engine = served("checked")
    assert_checked(engine, checkpoint("tiny-64"))
    [line] = engine.lines("switched off", "HK_CHECK", "head size 64")
    assert "query lengths" in line
