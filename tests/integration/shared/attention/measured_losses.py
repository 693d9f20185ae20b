"""What the engine computes faster, by measurement, is the engine's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hk_backend.engine import losses as evidence
from hk_backend.routing.routes import RouteCounters, Tally
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.engine import AttentionEngine
from tests.integration.shared.attention.rows import Row, prefill_tokens


def test_layers_that_the_engine_computes_faster(
    attention: AttentionEngine,
    counters: RouteCounters,
    environment: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unless the user has decided otherwise."""
    monkeypatch.setattr(evidence, "host_isa", lambda operator: "amx")
    # the engine's own attention would use tiles, which nothing in this process has asked Linux for
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    environment(HK_EVIDENCE="measure")
    attention.run(attention.layer(torch.bfloat16), attention.MIXED)
    tokens = prefill_tokens(attention.MIXED)
    fell_back(counters, evidence.LOSSES[0].why, tokens)
    environment(HK_EVIDENCE="ignore")
    attention.run(attention.layer(torch.bfloat16), attention.MIXED)
    assert counters.served == Tally(1, tokens)


def test_a_step_that_the_engine_computes_faster(
    attention: AttentionEngine,
    counters: RouteCounters,
    environment: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Decided step by step, by the longest prompt; its layers are HK's all the same."""
    monkeypatch.setattr(evidence, "host_isa", lambda operator: "avx512")
    environment(HK_EVIDENCE="measure", HK_STRICT="1")
    layer = attention.layer()
    attention.check(layer, attention.MIXED)
    fell_back(counters, evidence.LOSSES[1].why, prefill_tokens(attention.MIXED))
    attention.check(layer, [attention.EXTEND, Row(128)])
    assert counters.served == Tally(1, attention.EXTEND.query + 128)


__all__ = [name for name in globals() if name.startswith("test_")]
