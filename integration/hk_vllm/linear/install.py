"""Installs the linear route, once in each of vLLM's processes."""

from __future__ import annotations


def register_linear() -> str:
    """Changes vLLM's linear layers on this platform; returns the reason why not, or nothing."""
    from vllm.platforms import current_platform

    from hk_backend.engine.contract import why_unknown
    from hk_vllm.linear.contract import check_linear

    if why := why_unknown("vLLM", check_linear()):
        return why
    if not (current_platform.is_cpu() or current_platform.is_rocm()):
        return f"no route for vLLM's platform {current_platform.device_name}"
    from hk_vllm import sleeping
    from hk_vllm.linear import (
        auto_round,
        checkpoints,
        kernel_lists,
        loading,
        model,
        quantization,
        rotated,
        unquantized,
    )

    checkpoint_parts = checkpoints, rotated, auto_round
    for part in (unquantized, kernel_lists, *checkpoint_parts, quantization, loading, model):
        part.install()
    if current_platform.is_rocm():
        sleeping.install()
    return ""
