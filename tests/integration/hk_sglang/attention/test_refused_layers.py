"""Layers that are the parent's, by what the model asks of them; HK_STRICT refuses to serve them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hk_sglang.attention.layers import ServedLayer
from hk_sglang.attention.prefill import HKPrefill
from sglang.srt.layers.radix_attention import AttentionType

from hk_backend.engine.strict import StrictError
from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.integration.hk_sglang.attention.batch import MIXED, PREFILL, Batch, Server
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.rows import FRESH


@pytest.mark.parametrize(
    ("arguments", "changes", "why"),
    [
        ({"attn_type": AttentionType.ENCODER_ONLY}, {}, "attention type encoder_only"),
        (
            {"attn_type": AttentionType.DECODER_BIDIRECTIONAL},
            {},
            "attention type decoder_bidirectional",
        ),
        ({"use_irope": True}, {}, "chunked local attention"),
        ({"pos_encoding_mode": "ROPE_LLAMA"}, {}, "position encoding ROPE_LLAMA"),
        (
            {"logit_cap": 2.0, "logit_capping_method": "xai"},
            {},
            "logits capped by xai",
        ),
        ({}, {"xai_temperature_len": 8}, "a temperature that depends on the position"),
        ({"v_head_dim": 32}, {}, "values of 32 channels, keys of 64"),
        ({"logit_cap": -1.0}, {}, "logits_soft_cap -1.0 is negative or not finite"),
    ],
)
def test_layers(
    counters: RouteCounters,
    environment: Callable[..., None],
    arguments: dict[str, Any],
    changes: dict[str, Any],
    why: str,
) -> None:
    """Beside a layer that is served. Strict: the same reason stops the server."""
    server = Server([{}, arguments])
    refused = server.model.layers[1]
    for name, value in changes.items():
        setattr(refused, name, value)
    server.backend.hk._layers.pop(refused)
    hk: HKPrefill = server.backend.hk
    assert hk._served(refused).refusal == why
    batch = Batch(server, [FRESH])
    server.backend.init_forward_metadata(batch.metadata)
    batch.call(0)
    assert counters.served.calls == 1
    q, k, v = (torch.cat(t) for t in batch._new(1))
    v = v[..., : refused.v_head_dim]
    assert hk.attend(q.flatten(1), k, v, refused, batch.metadata, True, {}) is None
    assert dict(counters.fallbacks) == {why: Tally(1, FRESH.query)}
    hk._layers.pop(refused)
    environment(HK_STRICT="1")
    with pytest.raises(StrictError, match="attention would fall back"):
        hk._served(refused)


def test_a_layer_names_its_own_reason_first(counters: RouteCounters) -> None:
    """Where the batch has one, too."""
    why = "position encoding ROPE_LLAMA"
    batch = Batch(Server([{}, {"pos_encoding_mode": "ROPE_LLAMA"}]), MIXED, "TARGET_VERIFY")
    batch.check()
    tally = Tally(1, PREFILL)
    assert dict(counters.fallbacks) == {"speculative verification": tally, why: tally}


def test_cross_attention(counters: RouteCounters) -> None:
    assert judged({"is_cross_attention": True}).refusal == "cross attention"


def test_head_sizes(counters: RouteCounters) -> None:
    why = "head_size 20 is not a multiple of 8 up to 256"
    server = Server(head_size=20)
    Batch(server, MIXED).check()
    fell_back(counters, why, PREFILL)


def judged(arguments: dict[str, Any], **server: Any) -> ServedLayer:
    made = Server([arguments], **server)
    (served,) = made.backend.hk._layers.values()
    return served


def test_no_device(counters: RouteCounters, environment: Callable[..., None]) -> None:
    """Each call is the parent's, for the layer's own reason: nothing fails, for nothing runs."""
    environment(HK_DEVICE="hip")
    batch = Batch(Server([{}, {}]), MIXED)
    batch.check()
    (why,) = counters.fallbacks
    assert why.startswith("HK_DEVICE=hip: ")
    assert counters.fallbacks[why] == Tally(2, 2 * PREFILL)
    assert not routes.is_disabled("attention")
