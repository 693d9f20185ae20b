"""The layer that is being created; vLLM does not pass it to its kernels.

Its properties decide whether its FP8 blocks align with their scales, and whether latent attention
reads its weight.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

from hk_backend.engine.holding import holding
from hk_backend.engine.linear.checkpoint_tensors import verdict_on_blocks
from hk_backend.engine.linear.shards import name_of
from hk_backend.terms.verdict import SERVED, Verdict, refused

LATENT = "latent attention reads the weight itself"
_layer: ContextVar[Any] = ContextVar("layer", default=None)


def creating(layer: Any) -> AbstractContextManager[None]:
    """Context for the creation of the weights of `layer`, and with them of its kernel."""
    return holding(_layer, layer)


def verdict_on_created() -> Verdict:
    """Whether HK may serve the layer that is being created, whatever its format."""
    return refused(LATENT) if is_latent(_layer.get()) else SERVED


def blocks_verdict() -> Verdict:
    """Whether HK may serve the layer that is being created, if it has FP8 blocks."""
    return blocks_verdict_on(_layer.get())


def blocks_verdict_on(layer: Any) -> Verdict:
    """Whether a layer's blocks match its scales, which not all of vLLM's methods ensure."""
    if not getattr(layer, "allow_fp8_block_shape_mismatch", False):
        return SERVED
    return verdict_on_blocks(list(layer.output_partition_sizes), getattr(layer, "tp_size", 1))


def is_latent(layer: Any) -> bool:
    """Whether latent attention (MLA) reads the layer's weight, by the layer's name.

    vLLM's own mark (`_cpu_skip_gemm_dispatch`) is set only if it has a kernel.
    """
    return layer is not None and name_of(layer).rpartition(".")[2] == "kv_b_proj"


def latent_verdict(layer: Any, rotation: int) -> Verdict:
    """Whether latent attention can read a weight that is rotated.

    Attention reads a weight in an MX format as the layer's product with the identity. A rotation by
    64 turns it into exact eighths, one by 32 or 128 into numbers that no format has.
    """
    if rotation not in (0, 64) and is_latent(layer):
        return refused(f"{LATENT}, which a rotation by {rotation} would change: expected 64")
    return SERVED
