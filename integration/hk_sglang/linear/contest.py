"""Measures whether HK or SGLang is faster for a linear layer, before the layer is packed.

SGLang's side is its own method, as it was before HK changed it, over a stand-in for the layer. Both
sides compute without a bias.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from sglang.srt.layers.logits_processor import LogitsProcessor
from sglang.srt.layers.quantization import unquant
from sglang.srt.runtime_context import get_exec

from hk_backend.engine.linear.contest import Contests, Multiply, packed, unquantised_sides
from hk_backend.engine.linear.packed_layer import request_of
from hk_backend.engine.patching import original
from hk_sglang.limits import batch_tokens, running_requests
from hk_sglang.ranks import tensor_parallel

HEAD_ROWS = 64
"""Most rows of an LM head that are measured: it sees one token of each running request."""


def why_slower(layer: Any) -> str:
    """Reason why SGLang computes the unquantised `layer`, not HK; empty if HK does."""
    method = layer.quant_method
    sides = functools.partial(unquantised_sides, method, layer, type(method))
    theirs = with_kernel(type(method).__name__)
    return CONTESTS.why_slower(layer, theirs, request_of(layer.weight), sides)


def why_head_slower(head: Any, model: torch.nn.Module) -> str:
    """Reason why SGLang computes `model`'s LM head from the table itself; empty if HK does.

    SGLang's side needs no stand-in, as a head keeps its table.
    """
    processor = next(each for each in model.modules() if isinstance(each, LogitsProcessor))
    compute = original(LogitsProcessor._compute_lm_head)

    def sides() -> tuple[torch.nn.Module, Multiply]:
        return packed(head), lambda x: compute(processor, x, head)

    request = request_of(head.weight)
    return CONTESTS.why_slower(head, "LogitsProcessor", request, sides, is_head=True)


def largest_batch(is_head: bool) -> int:
    """Most rows that a layer computes at once: tokens, or requests for a head."""
    return running_requests(HEAD_ROWS) if is_head else batch_tokens()


CONTESTS = Contests("SGLang", tensor_parallel, largest_batch)


def with_kernel(method: str) -> str:
    """Text of a method of SGLang's, or of the configuration that chooses it.

    The text includes the kernels that the user has chosen for it.
    """
    chosen = get_exec().kernel
    flags = {
        "--bf16-gemm-backend": chosen.bf16_gemm_backend,
        "--fp8-gemm-backend": chosen.fp8_gemm_runner_backend,
    }
    named = [f"{flag} {value}" for flag, value in flags.items() if value not in (None, "auto")]
    return ", ".join([method, *(["AITER"] if unquant._use_aiter else []), *named])
