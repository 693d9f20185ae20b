"""Plain-torch stand-ins for the GPU kernels beneath vLLM's ROCm attention backends.

After `install()` the four backends of `vllm.v1.attention.backends` run on CPU tensors: their
own builders, metadata, cache specs, cache views and `forward`, only the kernels that these
call are this package's functions. So each of them owns its real cache layout, as it does on a GPU.

    ROCM_ATTN                key [B, H, D/x, N, x], value [B, H, D, N]
    ROCM_AITER_FA            key, value [B, N, H, D]; shuffled: reinterpreted by pointer as
                             key [B, H, D/x, N, x], value [B, H, N/x, D, x]
    ROCM_AITER_UNIFIED_ATTN  key, value [B, N, H, D]
    TRITON_ATTN              key, value [B, N, H, D]

Nothing here uses hk_backend: what HK computes is compared with these.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch

from tests.integration.hk_vllm.rocm.rocm_platform import stub_module
from tests.integration.hk_vllm.rocm.torch_kernels import aiter_fa, paged, x_packed
from tests.integration.hk_vllm.rocm.torch_kernels.common import compiled
from tests.integration.shared.attention import torch_kernels as shared


def install(patch: pytest.MonkeyPatch | None = None) -> None:
    """Put the functions above in the place of AITER's, Triton's and HIP's kernels.

    For the rest of this process, or for as long as `patch` lasts.
    """
    from vllm.v1.attention.backends import (
        rocm_aiter_fa,
        rocm_aiter_unified_attn,
        rocm_attn,
        triton_attn,
    )

    patch = patch or pytest.MonkeyPatch()
    modules: dict[str, dict[str, Any]] = {
        "aiter": {
            "flash_attn_varlen_func": aiter_fa.flash_attn_varlen_func,
            "paged_attention_common": aiter_fa.paged_attention_common,
        },
        "aiter.ops": {},
        "aiter.ops.triton": {},
        "aiter.ops.triton.unified_attention": {"unified_attention": shared.unified_attention},
        # the unified backend asks for the GPU's generation; the real module needs a driver
        "vllm.platforms.rocm": {"on_gfx11": lambda: False},
    }
    for name, contents in modules.items():
        patch.setitem(sys.modules, name, stub_module(name, **contents))

    for module, kernel in (
        (rocm_attn, x_packed.chunked_prefill_paged_decode),
        (rocm_attn, paged.triton_reshape_and_cache_flash),
        (triton_attn, shared.unified_attention),
        (triton_attn, paged.triton_reshape_and_cache_flash),
        (rocm_aiter_fa, aiter_fa.merge_attn_states),
        (rocm_aiter_fa, aiter_fa.cp_mha_gather_cache),
        (rocm_aiter_fa, aiter_fa.reshape_and_cache_shuffle_triton),
    ):
        patch.setattr(module, kernel.__name__, kernel, raising=False)
    patch.setattr(
        rocm_attn.PagedAttention,
        "write_to_paged_cache",
        staticmethod(compiled(x_packed.write_x_packed)),
    )
    write_pages = compiled(paged.write_pages)
    operators = _Namespace(rocm_aiter_unified_attn.ops, reshape_and_cache_flash=write_pages)
    patch.setattr(rocm_aiter_unified_attn, "ops", operators)
    kernels = types.SimpleNamespace(
        aiter=types.SimpleNamespace(paged_attention_v1=aiter_fa.paged_attention_v1),
        _C_cache_ops=types.SimpleNamespace(reshape_and_cache_flash=write_pages),
    )
    patch.setattr(rocm_aiter_fa, "torch", _Namespace(torch, ops=kernels, zeros=_zeros))


class _Namespace(types.SimpleNamespace):
    """A module with some names replaced; every other one is the module's own."""

    def __init__(self, module: object, **replaced: object) -> None:
        super().__init__(**replaced)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _zeros(*args: Any, pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:
    """`torch.zeros` where no allocator of pinned memory exists."""
    return torch.zeros(*args, **kwargs)
