"""Times HK's linear layers beside vLLM's own product, before a layer's weight is consumed.

Both sides prepare copies of the layer, which keeps its tensors whoever wins.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.config import get_current_vllm_config_or_none

from hk_backend.engine.linear.contest import ROWS, Contests, Sides
from hk_backend.ops import LinearRequest
from hk_vllm.ranks import tensor_parallel


def why_slower(
    layer: Any, request: LinearRequest, theirs: str, sides: Sides, *, is_head: bool = False
) -> str:
    """Reason why vLLM computes `layer`, which HK could serve; empty if HK does.

    Args:
        request: the layer, with all that decides its speed.
        theirs: name of vLLM's way to compute it.
        is_head: whether it computes logits.
    """
    with torch.inference_mode():  # requests run in this mode
        return CONTESTS.why_slower(layer, theirs, request, sides, is_head)


def largest_batch(is_head: bool) -> int:
    """Most rows that the engine gives a layer in one step: tokens, or requests for a head."""
    config = get_current_vllm_config_or_none()
    if config is None:
        return ROWS[-1]
    scheduler = config.scheduler_config
    limit: int = scheduler.max_num_seqs if is_head else scheduler.max_num_batched_tokens
    return limit


CONTESTS = Contests("vLLM", tensor_parallel, largest_batch)
