"""The LM head: what a model's configuration asks of it, and tables that it shares.

A head keeps its table: a tied table is also the embedding's, and vLLM reads an untied one for
`head_dtype`. Its packed copy is stored in addition, as vLLM's is.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import torch
from vllm.config import get_current_vllm_config_or_none
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    UnquantizedEmbeddingMethod,
    VocabParallelEmbedding,
)
from vllm.platforms import current_platform

from hk_backend.engine.linear.heads import (
    Head,
    asked,
    head_in,
    head_of,
    pack_head,
    quantization_of,
)
from hk_backend.engine.linear.methods import MethodConfig
from hk_backend.engine.linear.packed_layer import FORMAT_OF, release
from hk_backend.engine.linear.route import ROUTE, is_attached
from hk_backend.engine.linear.shared_table import (
    DRAFTS,
    LORA,
    OWN_TABLE,
    SEVERAL,
    is_empty,
    is_shared,
    share,
)
from hk_backend.ops.head_format import IN_HEAD, KEPT
from hk_backend.terms.weight_format import FORMATS
from hk_vllm import compile_key
from hk_vllm.linear.layer import verdict_on

IN_GRAPHS = f"{ROUTE}: embedding in the head"
"""In the key of compiled graphs, which hold the operator that looks rows up."""


def asked_of(vllm_config: Any, model_config: Any) -> Head:
    """What the model of `model_config`, a draft model too, asks of its head.

    Raises:
        ValueError: a format that does not exist, or that HK does not serve such a head in.
    """
    head = _asked_of(vllm_config.quant_config, model_config)
    if head.format != KEPT:
        shape = model_config.get_vocab_size(), model_config.get_hidden_size()
        head.check(shape, model_config.dtype, current_platform.device_type, verdict_on)
    return head


def _asked_of(quant_config: Any, model_config: Any) -> Head:
    method = model_config.quantization
    if isinstance(quant_config, MethodConfig) and quant_config.hk_method == method:
        return head_of(method, quant_config.options)  # from --hf-overrides, too
    return head_in(quantization_of(model_config.hf_config))


def format_of(head: Any) -> str:
    """The format that `head` is to be packed in.

    Raises:
        ValueError: HK does not serve it in what is asked for.
    """
    found, weight = asked(), head.weight
    format = found.format_of(head)
    if format == KEPT:
        return FORMAT_OF[weight.dtype]
    if not is_attached(head):
        found.check(tuple(weight.shape), weight.dtype, weight.device.type, verdict_on)
    return format


def why_in_another_dtype(dtype: torch.dtype) -> str:
    """Why vLLM computes a head whose table is in `dtype`, if it does so in another one."""
    config = get_current_vllm_config_or_none()
    model = None if config is None else config.model_config
    wanted = getattr(model, "head_dtype", None) or dtype
    return "" if wanted == dtype else f"an LM head in {wanted}, the model in {dtype}"


def pack(head: Any) -> None:
    """Pack a head that HK serves, or an embedding that is one."""
    pack_head(head, head.weight.data, format_of(head))
    if isinstance(head, ParallelLMHead):
        _tie(head)


# -- an LM head whose table is the embedding's
#
# vLLM reloads the embedding's weight only, and puts the head's buffers back as they were. So the
# embedding's reload fills the head's packed copy again.

_embeddings: WeakSet[Any] = WeakSet()
_heads: WeakSet[Any] = WeakSet()


def _tie(head: Any) -> None:
    """Remember `head`, if an embedding shares its table."""
    if head not in _heads:
        head.__dict__["hk_table"] = head.weight.data_ptr()
        _heads.add(head)


def note_embedding(layer: Any) -> None:
    """An embedding table has its values: the heads that share it, and were packed, follow."""
    if isinstance(layer, ParallelLMHead) or not isinstance(
        layer.quant_method, UnquantizedEmbeddingMethod
    ):
        return
    if is_shared(layer):
        if not is_empty(layer):
            _refill(layer)
        return
    if layer not in _embeddings:
        layer.__dict__["hk_table"] = layer.weight.data_ptr()
        _embeddings.add(layer)
        return
    for head in _heads:
        if head.__dict__["hk_table"] == layer.__dict__["hk_table"]:
            pack_head(head, layer.weight.data, head.__dict__["hk_packed"].format)


# -- an embedding that looks its rows up in the packed head


def why_table_stays(vllm_config: Any) -> str:
    """Why a model keeps the table that its head and embedding share; nothing if it need not."""
    if vllm_config.speculative_config is not None:
        return DRAFTS
    return LORA if vllm_config.lora_config is not None else ""


def share_table(model: Any, why: str) -> str:
    """Let the embedding of a loaded `model` look its rows up in the head, if that is asked for and
    they share a table; why it does not, otherwise, or `why` it may not."""
    if asked().embedding != IN_HEAD:
        return ""
    heads = [
        each
        for each in model.modules()
        if isinstance(each, VocabParallelEmbedding)
        and is_attached(each)
        and FORMATS[each.hk_packed.format].is_quantised
    ]
    if why or not heads:  # a head that is left to vLLM has its reason
        return why
    if len(heads) > 1:
        return SEVERAL
    head = heads[0]
    for table in model.modules():
        is_table = isinstance(table, VocabParallelEmbedding) and not isinstance(
            table, ParallelLMHead
        )
        if is_table and table.weight is head.weight:
            _share(table, head)
            release(head)
            compile_key.add_route(IN_GRAPHS)
            return ""
    return OWN_TABLE


def _refill(table: Any) -> None:
    """New values of a `table` that its head is packed from."""
    head = table.__dict__["hk_head"]
    pack_head(head, table.weight.data, head.__dict__["hk_packed"].format)
    _share(table, head)


def _share(table: Any, head: Any) -> None:
    share(table, head)
    table.__dict__["hk_head"] = head
    for known in (_embeddings, _heads):  # by addresses, where something else may lie from now on
        known.difference_update((table, head))
    release(table)
    table.__dict__.pop("cpu_linear", None)  # vLLM's own packed table
