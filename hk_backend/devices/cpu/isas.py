"""The instruction sets that the host kernels may use."""

from __future__ import annotations

import os

TORCH_LIMIT = "ATEN_CPU_CAPABILITY"
"""The variable that holds torch's own kernels to an instruction set; HK's are held with them."""
_BEYOND = {"avx2": ("avx512",), "default": ("avx512", "avx2")}


def usable_isas() -> list[str]:
    """From fast to slow: what this processor has, and torch is not kept from.

    Raises:
        ImportError: the extension cannot be loaded.
    """
    from hk_backend import _cpu

    beyond = _BEYOND.get(os.environ.get(TORCH_LIMIT, ""), ())
    return [isa for isa in _cpu.available_isas() if isa not in beyond]


def torch_limit() -> str:
    """What holds torch, for messages: ` with ATEN_CPU_CAPABILITY=avx2`; empty if nothing does."""
    limit = os.environ.get(TORCH_LIMIT)
    return f" with {TORCH_LIMIT}={limit}" if limit else ""
