"""Where HK cannot serve, SGLang does, and one line says why."""

from __future__ import annotations

import pytest

from tests.integration.hk_sglang.e2e.conftest import Checkpoint, Reader
from tests.integration.shared.e2e.compare import assert_true_answers

REASONS = {
    "decode-flag": ["decode_attention_backend: HK computes prefill only, using SGLang's own"],
    "other-flag": ["the server's own choice of torch_native for prefill"],
    "bad-backend": ["HK_BACKEND='atention'", "0, 1", "attention"],
    "bad-values": ["HK_DEVICE='gpu'", "cpu:avx512", "HK_CHECK='7'", "HK_STRICT='maybe'"],
    "no-such-device": ["HK_DEVICE=hip", "no HIP runtime"],
    "extension-missing": ["hk_backend._cpu", "cannot be loaded"],
    "extension-raises": ["RuntimeError: the extension is broken on purpose"],
    "engine-unknown": ["AttentionBackend.init_forward_metadata", "batch", "forward_batch"],
}
BOTH_ROUTES = ("no-such-device", "extension-missing")
"""What is in the way of attention and of linear layers, so that each says so."""


@pytest.mark.engine(*REASONS)
@pytest.mark.parametrize("name", REASONS)
def test_serves_and_says_why(name: str, served: Reader, checkpoint: Checkpoint) -> None:
    """Correct answers from SGLang alone, nothing routed, a line with the reason for each route."""
    engine = served(name)
    result = engine.only
    for item in result.rounds:
        assert_true_answers(item.answers, checkpoint("tiny-64"))
    for worker in result.rounds[-1].workers:
        assert worker.routes.get("attention", {}).get("tokens", 0) == 0
    lines = [line for line in engine.lines("hk_backend:") if "by HK" not in line]
    assert len(lines) == (2 if name in BOTH_ROUTES else 1), lines
    for word in REASONS[name]:
        assert all(word in line for line in lines), lines


@pytest.mark.engine("extension-raises")
def test_broken_extension_is_counted(served: Reader) -> None:
    """The route is off with its reason, and every prefill token is counted under it."""
    result = served("extension-raises").only
    [worker] = result.rounds[-1].workers
    attention = worker.routes["attention"]
    scheduled = worker.layers * sum(
        batch.prefill_tokens for item in result.rounds for batch in item.batches or []
    )
    assert not attention["on"]
    assert "broken on purpose" in attention["why"]
    assert sum(tally["tokens"] for tally in attention["fallbacks"].values()) == scheduled > 0


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
    assert engine.exit_code != 0 or engine.results[name].error
    assert engine.lines("HK_STRICT=1", why), engine.log


@pytest.mark.engine("checked")
def test_shadow_check(served: Reader, checkpoint: Checkpoint) -> None:
    """HK_CHECK=1: a healthy kernel passes; a faulty one is caught before its output is used."""
    engine = served("checked")
    healthy, faulty, after = engine.only.rounds
    for item in (healthy, faulty, after):
        assert_true_answers(item.answers, checkpoint("tiny-64"))
    first, second, third = (item.workers[0].routes["attention"] for item in engine.only.rounds)
    assert first["on"]
    assert first["routed_share"] == 1
    assert first["checked_calls"] == first["calls"] > 0
    assert 0 < first["max_check_error"] < 1e-5
    assert faulty.workers[0].mutated_calls == 1, "the route was not switched off at once"
    assert not second["on"]
    assert 0.01 < second["max_check_error"] < 0.03, "the outputs were scaled by 1.02"
    assert third["calls"] == second["calls"]
    [line] = engine.lines("switched off", "HK_CHECK", "head size 64")
    assert "query lengths" in line
