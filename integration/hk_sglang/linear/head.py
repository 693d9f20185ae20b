"""The LM head: SGLang's logits processor multiplies by its table without calling its method.

A head keeps its table, as a tied table is also the embedding's, and the packed copy is extra. Only
if the embedding is asked to look up its rows in the packed copy is the table released. The table is
packed again whenever SGLang has loaded weights. If something else replaces the table (a draft model
takes its target's), SGLang computes the logits.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.layers.logits_processor import LogitsProcessor
from sglang.srt.layers.quantization.unquant import (
    UnquantizedEmbeddingMethod,
    UnquantizedLinearMethod,
)
from sglang.srt.layers.utils import PPMissingLayer
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

from hk_backend.engine.foreign import foreign_method
from hk_backend.engine.linear.account import tables_as_heads
from hk_backend.engine.linear.heads import KEPT_HEAD, Head, head_in, quantization_of
from hk_backend.engine.linear.heads import pack_head as pack
from hk_backend.engine.linear.packed_layer import FORMAT_OF, no_kernel
from hk_backend.engine.linear.route import ROUTE, apply, is_attached
from hk_backend.engine.linear.shared_table import (
    DRAFTS,
    LORA,
    OWN_TABLE,
    SEVERAL,
    in_head_or,
    is_empty,
    is_shared,
    share,
)
from hk_backend.engine.patching import replace, wrap
from hk_backend.ops.head_format import IN_HEAD, KEPT
from hk_backend.routing.metrics import count
from hk_sglang.linear.arrivals import release, releasing
from hk_sglang.linear.contest import why_head_slower
from hk_sglang.linear.layer import verdict_on, why_not_packed

REPLACED = "an LM head whose table was replaced after it was loaded"


def install() -> None:
    """Changes the logits processor and embeddings; harmless to call again."""
    wrap(LogitsProcessor, "_compute_lm_head", _compute_lm_head)
    wrap(UnquantizedEmbeddingMethod, "process_weights_after_loading", _process)
    replace(UnquantizedEmbeddingMethod, "embedding", in_head_or)


def _compute_lm_head(
    original: Any,
    processor: Any,
    hidden_states: torch.Tensor,
    lm_head: Any,
    embedding_bias: torch.Tensor | None = None,
    **kwargs: Any,
) -> Any:
    if is_attached(lm_head):
        if lm_head.weight is lm_head.__dict__["hk_table"]:
            # SGLang does not add the bias to unquantised logits either
            return apply(lm_head, hidden_states.to(lm_head.weight.dtype))
        count(ROUTE, "fallback", hidden_states.shape[0], REPLACED)
    return original(processor, hidden_states, lm_head, embedding_bias, **kwargs)


def _process(original: Any, method: Any, layer: Any) -> None:
    original(method, layer)
    repack(layer)


def heads_of(model: Any) -> list[Any]:
    """The tables that compute a model's logits."""
    modules = list(model.modules())
    heads = [each for each in modules if isinstance(each, ParallelLMHead)]
    for each in modules:  # also those of a model around another one
        tied = getattr(each, "lm_head", None)
        if isinstance(tied, (VocabParallelEmbedding, torch.nn.Embedding)) and tied not in heads:
            heads.append(tied)
    logits = [each for each in modules if isinstance(each, LogitsProcessor)]
    elsewhere = any(isinstance(getattr(each, "lm_head", None), PPMissingLayer) for each in modules)
    if heads or not logits or elsewhere:  # on another pipeline stage
        return heads
    tables = [each for each in modules if isinstance(each, VocabParallelEmbedding)]
    return tables_as_heads(tables, {each.vocab_size for each in logits}, "org_vocab_size")


def head_requested_by(model_config: Any, device: str) -> Head:
    """The head that a model, a draft model included, requests.

    Args:
        device: the device where the model will be.

    Raises:
        ValueError: the format does not exist, or HK does not serve such a head in it.
    """
    head = head_in(quantization_of(model_config.hf_config))
    if head.format != KEPT:
        shape = model_config.vocab_size, model_config.hidden_size
        head.check(shape, model_config.dtype, torch.device(device).type, verdict_on)
    return head


def pack_head(head: Any, model: Any, asked: Head = KEPT_HEAD) -> str:
    """Packs a model's LM head in the requested format; returns the reason if HK does not serve it.

    Raises:
        ValueError: HK does not serve the head in the requested format.
    """
    if is_attached(head):
        return ""
    if not isinstance(head, VocabParallelEmbedding):
        return f"an LM head that is not one of SGLang's layers: {type(head).__name__}"
    if not isinstance(head.quant_method, (UnquantizedEmbeddingMethod, UnquantizedLinearMethod)):
        return no_kernel(head.quant_method)
    for each in (each for each in model.modules() if isinstance(each, LogitsProcessor)):
        if left := foreign_method(type(each), "sglang", "_compute_lm_head"):
            return left
        if (
            each.use_fp32_lm_head
            or getattr(each, "use_fp32_lm_head_output", False)  # since SGLang 0.5.23
            or each.rl_on_policy_target is not None
        ):
            return "an LM head in another dtype than the model's"
    weight, format = head.weight, asked.format_of(head)
    if format == KEPT or weight.dtype not in FORMAT_OF:
        if why := why_not_packed(weight) or why_head_slower(head, model):
            return why
        format = FORMAT_OF[weight.dtype]
    else:
        asked.check(tuple(weight.shape), weight.dtype, weight.device.type, verdict_on)
    pack_table(head, format)
    return ""


def repack(table: Any) -> None:
    """Packs a head's table again after SGLang has loaded weights."""
    if not is_attached(table) or is_empty(table):
        return
    format = table.__dict__["hk_packed"].format
    if not is_shared(table):
        pack_table(table, format)
        return
    with releasing(table, "weight", whole=repack):
        pack_table(table, format)


def why_table_stays(server_args: Any) -> str:
    """Reason why a server keeps the table of both head and embedding; empty if it need not."""
    if server_args.speculative_algorithm is not None:
        return DRAFTS
    return LORA if server_args.enable_lora or server_args.lora_paths else ""


def share_table(model: Any, asked: Head, why: str) -> str:
    """Makes the embedding of a loaded `model` look up its rows in the head, if that is requested.

    Head and embedding must be one module. Returns the reason why this is not done, if any. `why` is
    a reason why it may not be.
    """
    heads = [each for each in heads_of(model) if is_attached(each)]
    if asked.embedding != IN_HEAD or not heads:
        return ""  # a head that is left to SGLang has its own reason
    if len(heads) > 1:
        return SEVERAL
    head = heads[0]
    if isinstance(head, ParallelLMHead):
        return OWN_TABLE
    why = why or foreign_method(type(head.quant_method), "sglang", "embedding")
    if not why:
        share(head, head)
        release(head, "weight", whole=repack)
    return why


def pack_table(table: Any, format: str) -> None:
    """Packs a table `[vocabulary, K]`, which stays unchanged."""
    pack(table, table.weight.data, format)
    table.__dict__["hk_table"] = table.weight
