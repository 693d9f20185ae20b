"""The LM head: the format that a model's configuration requests for it.

A head keeps its table: a tied table is also the embedding's (tied.py), and vLLM reads an untied one
for `head_dtype`. Its packed copy is stored in addition, as vLLM's is.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.config import get_current_vllm_config_or_none

from hk_backend.engine.linear.heads import Head, head_in, head_of, quantization_of, requested_head
from hk_backend.engine.linear.methods import MethodConfig
from hk_backend.engine.linear.packed_layer import FORMAT_OF
from hk_backend.engine.linear.route import is_attached
from hk_backend.ops.head_format import KEPT
from hk_vllm.linear.layer import device_type, verdict_on


def head_requested_by(vllm_config: Any, model_config: Any) -> Head:
    """The head that the model of `model_config`, a draft model included, requests.

    Raises:
        ValueError: the format does not exist, or HK does not serve such a head in it.
    """
    head = _head_requested_by(vllm_config.quant_config, model_config)
    if head.format != KEPT:
        shape = model_config.get_vocab_size(), model_config.get_hidden_size()
        head.check(shape, model_config.dtype, device_type(), verdict_on)
    return head


def _head_requested_by(quant_config: Any, model_config: Any) -> Head:
    method = model_config.quantization
    if isinstance(quant_config, MethodConfig) and quant_config.hk_method == method:
        return head_of(method, quant_config.options)  # --hf-overrides included
    return head_in(quantization_of(model_config.hf_config))


def format_of(head: Any) -> str:
    """The format that `head` is to be packed in.

    Raises:
        ValueError: HK does not serve the head in the requested format.
    """
    found, weight = requested_head(), head.weight
    format = found.format_of(head)
    if format == KEPT:
        return FORMAT_OF[weight.dtype]
    if not is_attached(head):
        found.check(tuple(weight.shape), weight.dtype, device_type(), verdict_on)
    return format


def why_in_another_dtype(dtype: torch.dtype) -> str:
    """Reason why vLLM computes a head with a table in `dtype`, if it computes in another dtype."""
    config = get_current_vllm_config_or_none()
    model = None if config is None else config.model_config
    wanted = getattr(model, "head_dtype", None) or dtype
    return "" if wanted == dtype else f"an LM head in {wanted}, the model in {dtype}"
