"""Things broken before an engine starts: it must still serve, and say why HK does not."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from tests.integration.e2e import broken_kernels


def extension_missing() -> None:
    """`import hk_backend._cpu` raises ImportError."""
    sys.modules["hk_backend._cpu"] = None  # type: ignore[assignment]


def extension_raises() -> None:
    """Every call of the extension's attention raises."""
    extension: Any = importlib.import_module("hk_backend._cpu")

    def broken(*_: Any) -> None:
        raise RuntimeError("the extension is broken on purpose")

    extension.attention_prefill = broken


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
    """vLLM's quantisation methods take float32 models, which most say they do not.

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


SABOTAGES: dict[str, Callable[[], None]] = {
    sabotage.__name__: sabotage
    for sabotage in (
        extension_missing,
        extension_raises,
        engine_outside_contract,
        parent_outside_contract,
        float32_everywhere,
        broken_kernels.kernel_computes_wrong,
        broken_kernels.kernel_does_not_wait,
        broken_kernels.kernel_file_damaged,
    )
}
