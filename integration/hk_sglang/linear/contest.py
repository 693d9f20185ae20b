"""Measures whether HK or SGLang is faster for a linear layer, before the layer is packed.

SGLang's side is its own method, as it was before HK changed it, over a stand-in for the layer. Both
sides compute without a bias. A layer's answer is kept, so new weights are never measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.layers.logits_processor import LogitsProcessor
from sglang.srt.layers.quantization import unquant
from sglang.srt.runtime_context import get_exec

from hk_backend.engine.evidence import Contest, Decision
from hk_backend.engine.linear.contest import (
    Multiply,
    contest_of,
    decide_linear,
    rows_up_to,
    stand_in,
)
from hk_backend.engine.linear.packed_layer import FORMAT_OF, pack_layer
from hk_backend.engine.patching import MARK
from hk_backend.ops import LinearRequest
from hk_backend.terms.verdict import Verdict
from hk_sglang.limits import batch_tokens, running_requests
from hk_sglang.ranks import tensor_parallel

ENGINE = "SGLang"
Sides = Callable[[], tuple[torch.nn.Module, Multiply]]
"""Makes a stand-in with HK's weight attached, and SGLang's own product; may raise `NoContest`."""
HEAD_ROWS = 64
"""Most rows of an LM head that are measured: it sees one token of each running request."""


def why_slower(layer: Any) -> str:
    """Reason why SGLang computes the unquantised `layer`, not HK; empty if HK does."""
    return _once(layer, lambda: _unquantized(layer))


def why_head_slower(head: Any, model: torch.nn.Module) -> str:
    """Reason why SGLang computes `model`'s LM head from the table itself; empty if HK does."""
    return _once(head, lambda: _head(head, model))


def verdict_by_contest(request: LinearRequest, theirs: str, sides: Sides) -> Verdict:
    """Whether HK serves a layer of a quantised checkpoint that SGLang may be able to compute.

    Args:
        theirs: name of the configuration that chooses SGLang's method.
    """

    def contest() -> Contest:
        return contest_of(*sides(), request, rows_up_to(batch_tokens()))

    return decide_linear(ENGINE, _with_kernel(theirs), request, contest, tensor_parallel()).verdict


def _once(layer: Any, decision_on: Callable[[], Decision]) -> str:
    decision = layer.__dict__.get("hk_decision")
    if decision is None:
        decision = layer.__dict__["hk_decision"] = decision_on()
    why: str = decision.verdict.why
    return why


def _unquantized(layer: Any) -> Decision:
    method, request = layer.quant_method, _request(layer)

    def contest() -> Contest:
        theirs = with_own_weight(layer)
        stock(type(method).process_weights_after_loading)(method, theirs)
        compute = stock(type(method).apply)
        return _against(layer, lambda x: compute(method, theirs, x), request, batch_tokens())

    return decide_linear(
        ENGINE, _with_kernel(type(method).__name__), request, contest, tensor_parallel()
    )


def _head(head: Any, model: torch.nn.Module) -> Decision:
    """Decides on a head; SGLang's side needs no stand-in, as a head keeps its table."""
    request = _request(head)
    processor = next(each for each in model.modules() if isinstance(each, LogitsProcessor))
    compute = stock(LogitsProcessor._compute_lm_head)

    def contest() -> Contest:
        limit = running_requests(HEAD_ROWS)
        return _against(head, lambda x: compute(processor, x, head), request, limit)

    return decide_linear(
        ENGINE, "LogitsProcessor", request, contest, tensor_parallel(), is_head=True
    )


def _against(layer: Any, theirs: Multiply, request: LinearRequest, limit: int) -> Contest:
    ours = stand_in(layer)
    pack_layer(ours, layer.weight.data, request.format)
    return contest_of(ours, theirs, request, rows_up_to(limit))


def with_own_weight(layer: Any) -> Any:
    """A stand-in with a copy of the layer's weight, as SGLang may change a weight in place."""
    found = stand_in(layer)
    found.weight = torch.nn.Parameter(layer.weight.data.clone(), requires_grad=False)
    return found


def stock(function: Any) -> Any:
    """SGLang's own function, which HK has replaced by `function`."""
    return getattr(function, MARK, function)


def _request(layer: Any) -> LinearRequest:
    weight = layer.weight
    return LinearRequest(weight.device.type, weight.dtype, FORMAT_OF[weight.dtype], *weight.shape)


def _with_kernel(method: str) -> str:
    """Text of a method of SGLang's, with the kernels that the user has chosen for it."""
    chosen = get_exec().kernel
    flags = {
        "--bf16-gemm-backend": chosen.bf16_gemm_backend,
        "--fp8-gemm-backend": chosen.fp8_gemm_runner_backend,
    }
    named = [f"{flag} {value}" for flag, value in flags.items() if value not in (None, "auto")]
    return ", ".join([method, *(["AITER"] if unquant._use_aiter else []), *named])
