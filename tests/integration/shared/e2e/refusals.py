"""Where HK cannot serve, the engine does, and a line says why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from tests.integration.shared.e2e.compare import assert_true_answers
from tests.integration.shared.e2e.engine import HK, Reader, Served


@dataclass(frozen=True)
class Refusal:
    """What is in HK's way, and the `words` of the line that says so."""

    environment: dict[str, str]
    words: Sequence[str]
    sabotage: str = ""


REFUSALS = {
    "bad-backend": Refusal(
        {"HK_BACKEND": "atention"}, ["HK_BACKEND='atention'", "0, 1", "attention"]
    ),
    "bad-values": Refusal(
        HK | {"HK_DEVICE": "gpu", "HK_CHECK": "7", "HK_STRICT": "maybe"},
        ["HK_DEVICE='gpu'", "cpu:avx512", "HK_CHECK='7'", "HK_STRICT='maybe'"],
    ),
    "no-such-device": Refusal(HK | {"HK_DEVICE": "hip"}, ["HK_DEVICE=hip", "no HIP runtime"]),
    "extension-missing": Refusal(
        HK, ["hk_backend._cpu", "cannot be loaded"], sabotage="extension_missing"
    ),
    "extension-raises": Refusal(
        HK, ["RuntimeError: the extension is broken on purpose"], sabotage="extension_raises"
    ),
}
BOTH_ROUTES = ("no-such-device", "extension-missing")
"""What is in the way of attention and of linear layers, so that each says so."""


def assert_serves_and_says_why(name: str, words: Sequence[str], engine: Served, truth: str) -> None:
    """Correct answers from the engine alone, nothing routed, a line with the reason for each
    route."""
    result = engine.only
    for item in result.rounds:
        assert_true_answers(item.answers, truth)
    for worker in result.rounds[-1].workers:
        assert worker.routes.get("attention", {}).get("tokens", 0) == 0
    lines = [line for line in engine.lines("hk_backend:") if "by HK" not in line]
    assert len(lines) == (2 if name in BOTH_ROUTES else 1), lines
    for word in words:
        assert all(word in line for line in lines), lines


@pytest.mark.engine_proof
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


def assert_checked(engine: Served, truth: str) -> None:
    """HK_CHECK=1: a healthy kernel passes; a faulty one is caught before its output is used."""
    healthy, faulty, after = engine.only.rounds
    for item in (healthy, faulty, after):
        assert_true_answers(item.answers, truth)
    first, second, third = (item.workers[0].routes["attention"] for item in engine.only.rounds)
    assert first["on"]
    assert first["routed_share"] == 1
    assert first["checked_calls"] == first["calls"] > 0
    assert 0 < first["max_check_error"] < 1e-5
    assert faulty.workers[0].mutated_calls == 1, "the route was not switched off at once"
    assert not second["on"]
    assert 0.01 < second["max_check_error"] < 0.03, "the outputs were scaled by 1.02"
    assert third["calls"] == second["calls"]


__all__ = [name for name in globals() if name.startswith("test_")]
