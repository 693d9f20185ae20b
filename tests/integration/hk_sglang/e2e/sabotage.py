"""Faults to put into SGLang before an engine starts, and those in HK (shared/e2e/sabotage.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.integration.shared.e2e import sabotage


def engine_outside_contract() -> None:
    """An SGLang whose attention backends take other arguments than the plugin knows."""
    from sglang.srt.layers.attention.base_attn_backend import AttentionBackend

    def init_forward_metadata(self: Any, batch: Any) -> None:
        raise NotImplementedError

    init_forward_metadata.__qualname__ = "AttentionBackend.init_forward_metadata"
    AttentionBackend.init_forward_metadata = init_forward_metadata


def float32_everywhere() -> None:
    """Let SGLang's quantisation methods take float32 models, which most of them refuse.

    In float32 an answer differs from the truth by what is wrong, not by what is rounded.
    """
    import torch
    from sglang.srt.layers.quantization import QUANTIZATION_METHODS

    everything = [torch.float32, torch.float16, torch.bfloat16]
    for name in ("fp8", "compressed-tensors", "quark", "modelopt"):
        QUANTIZATION_METHODS[name].get_supported_act_dtypes = lambda *_: everything


def nothing_compiled() -> None:
    """Compile nothing: some models would take longer to compile than to answer these tests."""
    import torch

    torch.compiler.set_stance("force_eager")


SABOTAGES: dict[str, Callable[[], None]] = sabotage.SABOTAGES | {
    broken.__name__: broken
    for broken in (engine_outside_contract, float32_everywhere, nothing_compiled)
}
