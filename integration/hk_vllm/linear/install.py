"""Installs the linear route, once in each of vLLM's processes."""

from __future__ import annotations


def register_linear() -> str:
    """Changes vLLM's linear layers on this platform; returns the reason why not, or nothing."""
    from vllm.platforms import current_platform

    from hk_vllm.linear.contract import check_linear

    verdict = check_linear()
    if not verdict:
        return f"vLLM is not one the plugin knows: {verdict.why}"
    if not (current_platform.is_cpu() or current_platform.is_rocm()):
        return f"no route for vLLM's platform {current_platform.device_name}"
    from hk_vllm.linear import (
        checkpoints,
        kernels,
        model,
        quantization,
        rotated,
        saving,
        tensor_names,
        unquantized,
    )

    parts = unquantized, kernels, checkpoints, rotated, quantization, tensor_names, model, saving
    for part in parts:
        part.install()
    return ""
