"""Faults to put into vLLM before an engine starts, beside those in HK (shared/e2e/sabotage.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.integration.shared.e2e import sabotage


def engine_outside_contract() -> None:
    """An engine whose builders take other arguments than the plugin knows."""
    from vllm.v1.attention.backend import AttentionMetadataBuilder

    def build(self: Any, shared_prefix: int, batch: Any) -> Any:
        raise NotImplementedError

    build.__qualname__ = "AttentionMetadataBuilder.build"
    AttentionMetadataBuilder.build = build


def parent_outside_contract() -> None:
    """An engine whose CPU backend's builder takes other arguments than the plugin knows."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionMetadataBuilder

    original = CPUAttentionMetadataBuilder.build

    def build(self: Any, prefix: int, common_attn_metadata: Any, fast_build: bool = False) -> Any:
        return original(self, prefix, common_attn_metadata, fast_build)

    build.__qualname__ = "CPUAttentionMetadataBuilder.build"
    CPUAttentionMetadataBuilder.build = build


def float32_everywhere() -> None:
    """Let vLLM's quantisation methods take float32 models, which most of them refuse.

    In float32 an answer differs from the truth by what is wrong, not by what is rounded.
    """
    import torch
    from vllm.model_executor.layers.quantization import (
        QUANTIZATION_METHODS,
        get_quantization_config,
    )

    everything = [torch.float32, torch.float16, torch.bfloat16]
    for name in ("fp8", "quark", "modelopt", "modelopt_mxfp8"):
        assert name in QUANTIZATION_METHODS
        config = get_quantization_config(name)
        config.get_supported_act_dtypes = lambda *_: everything


SABOTAGES: dict[str, Callable[[], None]] = sabotage.SABOTAGES | {
    broken.__name__: broken
    for broken in (
        engine_outside_contract,
        parent_outside_contract,
        float32_everywhere,
    )
}
