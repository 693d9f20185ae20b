"""Whether HK serves a vLLM layer, and whether it is faster there than vLLM's own product.

The latter is measured before a layer's weight is consumed. Both sides prepare copies of the layer,
which keeps its tensors whoever wins.
"""

from __future__ import annotations

import torch
from vllm import envs
from vllm.config import get_current_vllm_config_or_none
from vllm.platforms import current_platform

from hk_backend.engine.linear import packed_layer
from hk_backend.engine.linear.contest import ROWS, Contests
from hk_backend.ops import LinearRequest
from hk_backend.terms.verdict import Verdict
from hk_vllm.ranks import tensor_parallel


def verdict_on(request: LinearRequest) -> Verdict:
    """Whether HK can serve a layer in this process."""
    unproven = "VLLM_BATCH_INVARIANT: not proven for HK" if envs.VLLM_BATCH_INVARIANT else ""
    return packed_layer.verdict_on(request, unproven)


def device_type() -> str:
    """Type in torch of the device that vLLM computes on."""
    return str(current_platform.device_type)


def linear_backend() -> str:
    """Value of `--linear-backend`."""
    config = get_current_vllm_config_or_none()
    return "auto" if config is None else str(config.kernel_config.linear_backend)


def largest_batch(is_head: bool) -> int:
    """Most rows that the engine gives a layer in one step: tokens, or requests for a head."""
    config = get_current_vllm_config_or_none()
    if config is None:
        return ROWS[-1]
    scheduler = config.scheduler_config
    limit: int = scheduler.max_num_seqs if is_head else scheduler.max_num_batched_tokens
    return limit


CONTESTS = Contests("vLLM", tensor_parallel, largest_batch, torch.inference_mode)
