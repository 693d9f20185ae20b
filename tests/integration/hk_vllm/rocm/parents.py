"""Every KV-cache layout that a ROCm backend of vLLM can own, as a parent for HK to wrap."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

from tests.integration.hk_vllm.attention.batch import BLOCK_SIZE


@dataclass(frozen=True)
class Parent:
    """One backend with one physical layout.

    `member`: the backend's name in vLLM's registry. `layout`: a name of KVCacheLayout, the order in
    memory of layers, blocks, head slots, tokens (N), content. `kernel_block_size`: tokens of a
    block as the kernels see it; the cache manager's `block_size` may be a multiple.
    """

    name: str
    member: str
    layout: str
    block_size: int = 32
    kernel_block_size: int = 32
    shuffled: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def path(self) -> str:
        """vLLM's own class, whatever has been registered over it."""
        path: str = AttentionBackendEnum[self.member].value
        return path

    @property
    def hk_path(self) -> str:
        return f"hk_vllm.attention.backend.HK_{self.member}"

    def install(self) -> None:
        """Let this machine's platform choose HK's backend in place of CPU_ATTN, from now on.

        The kernels beneath it must have been replaced (torch_kernels.py).
        """
        from vllm.v1.attention.selector import _cached_get_attn_backend

        self.answer_shuffled(pytest.MonkeyPatch())
        register_backend(AttentionBackendEnum.CPU_ATTN, self.hk_path)
        _cached_get_attn_backend.cache_clear()

    def answer_shuffled(self, patch: pytest.MonkeyPatch) -> None:
        """Answer AITER_FA's question about its cache, before it lays out, writes or reads it.

        The answer is vLLM's own where AITER's library can run: VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT.
        """
        from vllm._aiter_ops import rocm_aiter_ops

        answer = staticmethod(lambda: self.shuffled)
        patch.setattr(rocm_aiter_ops, "is_shuffle_kv_cache_enabled", answer)


PARENTS = {
    parent.name: parent
    for parent in (
        # keys [B, H, D/x, N, x], values [B, H, D, N]: one plane each, or both within a block
        Parent("rocm-attn", "ROCM_ATTN", "LHBNC", 16, 16),
        Parent("rocm-attn-in-blocks", "ROCM_ATTN", "LBHNC", 48, 48),
        # [B, H, N, 2D]: heads within a block, one plane per head, manager blocks of two
        Parent("aiter-fa", "ROCM_AITER_FA", "LBHNC", 16, 16),
        Parent("aiter-fa-planes", "ROCM_AITER_FA", "LHBNC"),
        Parent("aiter-fa-split-blocks", "ROCM_AITER_FA", "LBHNC", 64, 32),
        # keys [B, H, D/x, N, x], values [B, H, N/x, D, x]
        Parent("aiter-fa-shuffled", "ROCM_AITER_FA", "LHBNC", shuffled=True),
        # [B, H, N, 2D] again
        Parent("unified", "ROCM_AITER_UNIFIED_ATTN", "LBHNC", 64, 64),
        Parent("triton-nhd", "TRITON_ATTN", "LBNHC", 16, 16),
        # the layers of a block side by side: a block's stride spans them all
        Parent("triton-layers-in-blocks", "TRITON_ATTN", "BLNHC", 16, 16),
    )
}
"""Parents as engines serve them. vLLM's choice without a flag, for each backend, is among them."""

LAYER_PARENTS = [
    *(
        replace(parent, block_size=BLOCK_SIZE, kernel_block_size=BLOCK_SIZE)
        for parent in PARENTS.values()
        if parent.block_size == parent.kernel_block_size
    ),
    Parent("unified-planes", "ROCM_AITER_UNIFIED_ATTN", "LHBNC"),
    Parent("triton-hnd", "TRITON_ATTN", "LBHNC"),
]
"""Parents for single layers (rocm_layer.py), whose blocks have one size."""
