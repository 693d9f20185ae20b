"""Times HK's linear layers beside vLLM's own product, before a layer's weight is consumed.

Both sides prepare copies of the layer, which keeps its tensors whoever wins. A layer's answer is
kept, so a reload of weights measures nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from vllm.config import get_current_vllm_config_or_none

from hk_backend.engine.evidence import Contest
from hk_backend.engine.linear.contest import (
    ROWS,
    Multiply,
    contest_of,
    decide_linear,
    rows_up_to,
    stand_in,
)
from hk_backend.ops import LinearRequest
from hk_vllm.ranks import tensor_parallel

Sides = Callable[[], tuple[torch.nn.Module, Multiply]]
"""Makes a copy of the layer packed by HK, and vLLM's product; may raise `NoContest`."""


def why_slower(
    layer: Any, request: LinearRequest, theirs: str, sides: Sides, *, is_head: bool = False
) -> str:
    """Reason why vLLM computes `layer`, which HK could serve; empty if HK does.

    Args:
        request: the layer, with all that decides its speed.
        theirs: name of vLLM's way to compute it.
        is_head: whether it computes logits.
    """
    decision = layer.__dict__.get("hk_decision")
    if decision is None:

        def contest() -> Contest:
            return contest_of(*sides(), request, rows_up_to(largest_batch(is_head)))

        with torch.inference_mode():  # requests run in this mode
            decision = decide_linear(
                "vLLM", theirs, request, contest, tensor_parallel(), is_head=is_head
            )
        layer.__dict__["hk_decision"] = decision
    why: str = decision.verdict.why
    return why


def with_own_tensors(layer: Any) -> Any:
    """A stand-in with copies of the layer's parameters, as vLLM may change them in place."""
    found = stand_in(layer)
    for name, parameter in layer._parameters.items():
        if parameter is not None:
            found._parameters[name] = _copied(parameter)
    return found


def _copied(parameter: torch.nn.Parameter) -> torch.nn.Parameter:
    """A copy with the same values, class and attributes, as vLLM's schemes ask for all three."""
    data = parameter.detach().clone()
    copied: torch.nn.Parameter = torch.Tensor._make_subclass(type(parameter), data, False)
    copied.__dict__.update(parameter.__dict__)
    return copied


def largest_batch(is_head: bool) -> int:
    """Most rows that the engine gives a layer in one step: tokens, or requests for a head."""
    config = get_current_vllm_config_or_none()
    if config is None:
        return ROWS[-1]
    scheduler = config.scheduler_config
    limit: int = scheduler.max_num_seqs if is_head else scheduler.max_num_batched_tokens
    return limit
