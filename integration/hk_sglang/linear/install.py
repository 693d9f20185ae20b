"""Installs the linear route, once in each of SGLang's processes."""

from __future__ import annotations


def register_linear() -> str:
    """Changes SGLang's linear layers on this platform; returns the reason why not, or nothing."""
    from hk_backend.engine.contract import why_unknown
    from hk_sglang.linear.contract import check_linear

    if why := why_unknown("SGLang", check_linear()):
        return why
    from hk_sglang import serving, sleeping
    from hk_sglang.linear import (
        checkpoints,
        head,
        layer,
        loading,
        model,
        quantization,
        rotated,
        unquantized,
    )

    parts = layer, unquantized, head, checkpoints, rotated, quantization, loading
    for part in (*parts, model, serving, sleeping):
        part.install()
    return ""
