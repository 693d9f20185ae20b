"""Whether HK serves a vLLM layer."""

from __future__ import annotations

from typing import Any

import torch
from vllm import envs
from vllm.config import get_current_vllm_config_or_none
from vllm.platforms import current_platform

from hk_backend.engine.linear import packed_layer
from hk_backend.engine.linear.route import ROUTE
from hk_backend.ops import LinearRequest
from hk_backend.routing.routes import routes
from hk_backend.terms.verdict import Verdict, refused


def verdict_on(format: str, n: int, k: int, dtype: torch.dtype, **facts: Any) -> Verdict:
    """Whether HK can serve a layer with a weight `[n, k]` in this process.

    Args:
        facts: further fields of `LinearRequest`.
    """
    if routes.verdict(ROUTE) and envs.VLLM_BATCH_INVARIANT:
        return refused("VLLM_BATCH_INVARIANT: not proven for HK")
    request = LinearRequest(current_platform.device_type, dtype, format, n, k, **facts)
    return packed_layer.verdict_on(request)


def linear_backend() -> str:
    """Value of `--linear-backend`."""
    config = get_current_vllm_config_or_none()
    return "auto" if config is None else str(config.kernel_config.linear_backend)
