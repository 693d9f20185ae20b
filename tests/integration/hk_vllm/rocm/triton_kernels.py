"""vLLM's own Triton kernels beneath its ROCm backends, as machine code on an emulated MI355X.

A process in which vLLM has been imported without Triton imports the kernels' modules once more.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from types import ModuleType

import pytest
import torch

from hk_backend.lab.foreign import triton_driver
from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock.vllm_engine import CAPABILITIES

ARCH = "gfx950"
TRITON = ("vllm.triton_utils", "vllm.triton_utils.importing")
KERNELS = "vllm.v1.attention.ops"
MODULES = (
    "triton_attention_helpers",
    "prefix_prefill",
    "chunked_prefill_paged_decode",
    "triton_unified_attention",
    "triton_reshape_and_cache_flash",
)
"""Modules of `KERNELS`, each before those that import it."""


@cache
def gpu() -> TritonGpu:
    """The emulated GPU of this process."""
    return triton_driver.install(ARCH)


@cache
def modules() -> dict[str, ModuleType]:
    """vLLM's modules of kernels, with Triton in them."""
    names = [*TRITON, *(f"{KERNELS}.{name}" for name in MODULES)]
    without = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    try:
        gpu()  # imports vLLM's part for Triton
        return {name: import_module(f"{KERNELS}.{name}") for name in MODULES}
    finally:
        sys.modules.update(without)


def install(patch: pytest.MonkeyPatch) -> None:
    """Put the kernels beneath ROCM_ATTN and TRITON_ATTN, for as long as `patch` lasts."""
    from vllm.platforms.cpu import CpuPlatform
    from vllm.platforms.interface import DeviceCapability
    from vllm.triton_utils import HAS_TRITON
    from vllm.v1.attention.backends import rocm_attn, triton_attn

    can = CAPABILITIES[ARCH]
    patch.setattr(torch.cuda, "get_device_capability", lambda device=None: can)
    answer = staticmethod(lambda device_id=0: DeviceCapability(*can))
    patch.setattr(CpuPlatform, "get_device_capability", answer)
    if HAS_TRITON:  # the backends have them
        return
    for backend, module, kernel in (
        (rocm_attn, "chunked_prefill_paged_decode", "chunked_prefill_paged_decode"),
        (rocm_attn, "triton_reshape_and_cache_flash", "triton_reshape_and_cache_flash"),
        (triton_attn, "triton_unified_attention", "unified_attention"),
        (triton_attn, "triton_reshape_and_cache_flash", "triton_reshape_and_cache_flash"),
    ):
        patch.setattr(backend, kernel, getattr(modules()[module], kernel))
