"""Another backend for decode than for prefill: SGLang picks by mode, and HK is in its own half."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from sglang.srt.layers.attention.hybrid_attn_backend import HybridAttnBackend
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.model_executor.model_runner_components import attention_backend_setup

from hk_backend.routing.routes import RouteCounters, Tally
from tests.integration.hk_sglang.attention.batch import MIXED, PREFILL, Batch, Server, is_wrapped
from tests.integration.shared.attention.rows import DECODE


def hybrid(prefill: str, decode: str) -> HybridAttnBackend:
    """SGLang's own pair of two backends, over one runner."""
    server = Server(name=prefill)
    server.runner.decode_attention_backend_str = decode
    server.runner.model_config = SimpleNamespace(
        context_len=256, hf_config=SimpleNamespace(), hf_text_config=SimpleNamespace()
    )
    backends = [
        attention_backend_setup._build_full_attention_backend_from_str(
            model_runner=server.runner, backend_str=name, init_new_workspace=False
        )
        for name in (prefill, decode)
    ]
    server.backend = HybridAttnBackend(server.runner, *backends)
    return server


@pytest.fixture
def registry(stand_ins: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The routed factories where SGLang's runner looks for them."""
    from tests.integration.hk_sglang.attention import batch

    monkeypatch.setattr(attention_backend_setup, "ATTENTION_BACKENDS", batch.ATTENTION_BACKENDS)


def test_prefill_by_hk_beside_another_decode(counters: RouteCounters, registry: None) -> None:
    """SGLang picks by mode; the decode half is the other backend, unwrapped."""
    server = hybrid("torch_native", "triton")
    assert is_wrapped(server.backend.prefill_backend)
    assert not is_wrapped(server.backend.decode_backend)
    Batch(server, MIXED).check()
    assert counters.served == Tally(1, PREFILL)
    Batch(server, [DECODE], "DECODE").check()
    assert counters.served.calls == 1
    assert not counters.fallbacks


@pytest.mark.parametrize("mode", ["decode", "prefill"])
def test_verification_goes_where_sglang_sends_it(
    counters: RouteCounters, registry: None, published: Callable[..., None], mode: str
) -> None:
    """To the decode half, which HK never sees, or to the prefill half, whose parent computes."""
    published(speculative_attention_mode=mode)
    server = hybrid("torch_native", "triton")
    chosen = server.backend._select_backend(ForwardMode.TARGET_VERIFY)
    assert is_wrapped(chosen) == (mode == "prefill")
    Batch(server, MIXED, "TARGET_VERIFY").check()
    assert not counters.served.calls
    assert list(counters.fallbacks) == (["speculative verification"] if mode == "prefill" else [])
