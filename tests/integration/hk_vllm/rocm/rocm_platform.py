"""vLLM's own ROCm platform on a machine without a GPU, for backends over torch."""

from __future__ import annotations

import sys

from hk_backend.lab.stock import vllm_platform
from hk_backend.lab.stock.vllm_platform import stub_module

__all__ = ["pretend", "stub_module"]


def pretend(arch: str, aiter: bool) -> None:
    """Make this process's vLLM detect one AMD GPU of `arch` ("gfx942"), with AITER or without.

    Call it before anything of vLLM is imported.
    """
    vllm_platform.pretend(arch)
    if aiter:
        sys.modules["aiter"] = stub_module("aiter")

    from vllm.platforms import current_platform
    from vllm.triton_utils import tl

    assert current_platform.is_rocm()

    # Triton's dtypes, which backends name when they are imported; vLLM's placeholder lacks some
    for name in ("bfloat16", "float16", "int16", "float8e4nv"):
        setattr(tl, name, getattr(tl, name, None))
