"""Arguments and variables with which several tests start engines."""

from __future__ import annotations

CHUNKED = {
    "chunked_prefill_size": 128,
    "max_running_requests": 4,
    "enable_mixed_chunk": True,
    "disable_radix_cache": True,
}
"""Prompts are cut into pieces of at most 128 tokens that share steps with decodes."""
RADIX = {**CHUNKED, "disable_radix_cache": False}
ON_EMULATED_GPU = {"TEST_TRITON": "gfx950"}
"""Variables of an engine whose Triton kernels run on an emulated GPU: its backends for ROCm do."""
TWO_RANKS = {"TEST_SPAWN": "1", "SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
