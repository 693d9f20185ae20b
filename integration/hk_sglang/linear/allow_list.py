"""Allows the hk_* methods on ROCm, where SGLang's model configuration lists the allowed methods.

The list is a local variable of `ModelConfig._verify_quantization`, which reads it only
`if is_hip()`. So `is_hip()` answers no while a model with one of these methods is verified.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang.srt.configs import model_config
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from hk_backend.engine.linear.options import FORMATS_OF

TARGET = "sglang.srt.configs.model_config.ModelConfig._verify_quantization"


def install() -> None:
    """Registers the hook, which SGLang applies after all plugins; harmless to call again."""
    if all(hook is not verify for _, hook, _ in HookRegistry._hooks.get(TARGET, ())):
        HookRegistry.register(TARGET, verify, HookType.AROUND)


def verify(original: Callable[[Any], None], config: Any) -> None:
    """Replaces `ModelConfig._verify_quantization`."""
    if _method_of(config) not in FORMATS_OF:
        original(config)
        return
    is_hip = model_config.is_hip
    model_config.is_hip = lambda: False
    try:
        original(config)
    finally:
        model_config.is_hip = is_hip


def _method_of(config: Any) -> str:
    """The requested method, or the checkpoint's."""
    if config.quantization:
        return str(config.quantization).lower()
    found = config._parse_quant_hf_config() or {}
    return str(found.get("quant_method", "")).lower()
