"""An LM head and an embedding with one table, when vLLM loads and when it reloads them.

vLLM loads each layer into a table of its own. After the first load it shares one of the tables if
they are equal. A reload copies each layer's values into the memory that the layer had before. So
the last layer would overwrite the other.

HK keeps the two apart. The head's packed copy follows the head's own table if the reload brings
one, and the embedding's table otherwise.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import torch
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    UnquantizedEmbeddingMethod,
    VocabParallelEmbedding,
)
from vllm.model_executor.model_loader.reload.layerwise import LAYERWISE_INFO

from hk_backend.engine.foreign import foreign_method
from hk_backend.engine.linear.heads import pack_head, requested_head
from hk_backend.engine.linear.kept import hand_over, refuse
from hk_backend.engine.linear.online import check_finite
from hk_backend.engine.linear.packed_layer import release
from hk_backend.engine.linear.route import PREFIX, ROUTE, is_attached, move
from hk_backend.engine.linear.shards import CheckpointError
from hk_backend.engine.linear.shared_table import (
    DRAFTS,
    LORA,
    OWN_TABLE,
    SEVERAL,
    is_empty,
    is_shared,
    share,
)
from hk_backend.ops.head_format import IN_HEAD
from hk_backend.terms.weight_format import FORMATS
from hk_vllm import compile_key

IN_GRAPHS = f"{ROUTE}: embedding in the head"
"""Entry in the key of compiled graphs, as they hold the operator that looks up rows."""

_embeddings: WeakSet[Any] = WeakSet()
_heads: WeakSet[Any] = WeakSet()


def pack(head: Any, format: str) -> None:
    """Packs a `head` whose own table vLLM has just loaded, or an embedding that also serves as the
    head."""
    reload, embedding = _reload_of(head), _embedding_of(head)
    if reload is None or embedding is None:
        pack_head(head, head.weight.data, format)
        _note_head(head)
        return
    if is_shared(embedding) and not _is_apart(embedding):
        try:
            check_finite(head, head.weight.data)
        except CheckpointError as error:
            refuse(head, error)
            head.weight = reload[0]["weight"]
            _keep_buffers(head)
            return
        move(head, embedding)  # graphs look up rows in it
        hand_over(head, embedding)
    pack_head(head, head.weight.data, format)
    head.weight = reload[0]["weight"]  # vLLM would copy the head's table over the embedding's
    head.__dict__["hk_own_in"] = _reload_of(embedding)
    _keep_buffers(head)
    if _reload_of(embedding) is None and is_shared(embedding) and _are_equal(embedding, head):
        _join(embedding, head)


def note_embedding(layer: Any) -> None:
    """Makes the packed heads that share an embedding table follow its new values."""
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
        if head.__dict__["hk_table"] == layer.__dict__["hk_table"] and not _has_own(head, layer):
            pack_head(head, layer.weight.data, head.__dict__["hk_packed"].format)


def _note_head(head: Any) -> None:
    """Remembers `head` by its table's address, which an embedding may have, too."""
    if isinstance(head, ParallelLMHead) and head not in _heads:
        head.__dict__["hk_table"] = head.weight.data_ptr()
        _heads.add(head)


def _embedding_of(head: Any) -> Any:
    """The embedding that had one table with `head` when the model was first loaded; or None."""
    if "hk_embedding" in head.__dict__:
        return head.__dict__["hk_embedding"]
    if head not in _heads:
        return None
    table = head.__dict__["hk_table"]
    return next((each for each in _embeddings if each.__dict__["hk_table"] == table), None)


def _reload_of(layer: Any) -> Any:
    """The parameters and buffers that vLLM's reload is to fill in `layer`, a tuple of dicts.

    None outside of a reload, and as soon as it has loaded `layer`. Each reload has another tuple.
    """
    info = LAYERWISE_INFO.get(layer)
    return None if info is None else info.kernel_tensors


def _has_own(head: Any, embedding: Any) -> bool:
    """Whether the reload that loads `embedding` has brought another table for `head`."""
    own = head.__dict__.get("hk_own_in")
    return own is not None and own is _reload_of(embedding)


# -- an embedding that looks up its rows in the packed head


def why_table_stays(vllm_config: Any) -> str:
    """Reason why a model keeps the table of both head and embedding; empty if it need not."""
    if vllm_config.speculative_config is not None:
        return DRAFTS
    return LORA if vllm_config.lora_config is not None else ""


def share_table(model: Any, why: str) -> str:
    """Makes the embedding of a loaded `model` look up its rows in the head, if that is requested.

    They must share a table. Returns the reason why this is not done, if any. `why` is a reason why
    it may not be.
    """
    if requested_head().embedding != IN_HEAD:
        return ""
    heads = [
        each
        for each in model.modules()
        if isinstance(each, VocabParallelEmbedding)
        and is_attached(each)
        and FORMATS[each.hk_packed.format].is_quantised
    ]
    if why or not heads:  # a head that is left to vLLM has its own reason
        return why
    if len(heads) > 1:
        return SEVERAL
    head = heads[0]
    for table in model.modules():
        is_table = isinstance(table, VocabParallelEmbedding) and not isinstance(
            table, ParallelLMHead
        )
        if is_table and table.weight is head.weight:
            if left := foreign_method(type(table.quant_method), "vllm", "embedding"):
                return left
            _share(table, head)
            release(head)
            compile_key.add_route(IN_GRAPHS)
            return ""
    return OWN_TABLE


def _share(table: Any, head: Any) -> None:
    """Makes `table` look up its rows in the weight that `head` has packed, or in its own."""
    share(table, table if _is_apart(table) else head)
    table.__dict__["hk_head"] = head
    head.__dict__["hk_embedding"] = table
    for known in (_embeddings, _heads):  # something else may take their addresses
        known.difference_update((table, head))
    release(table)
    table.__dict__.pop("cpu_linear", None)  # vLLM's own packed table


def _refill(table: Any) -> None:
    """Packs new values of a `table` that looks up its rows in a packed weight."""
    head = table.__dict__["hk_head"]
    owner = table if _is_apart(table) else head
    pack_head(owner, table.weight.data, owner.__dict__["hk_packed"].format)
    _share(table, head)
    if _is_apart(table) and (not _has_own(head, table) or _are_equal(table, head)):
        _join(table, head)


# A reload that brings two tables separates them; one that brings equal tables joins them again.


def _is_apart(table: Any) -> bool:
    """Whether a `table` that shares its head's weight has had its own since the last reload."""
    return "hk_packed" in table.__dict__ and table.__dict__.get("hk_head") is not table


def _are_equal(table: Any, head: Any) -> bool:
    """Whether both have packed the same numbers."""
    one, other = (each.__dict__["hk_packed"].tensors() for each in (table, head))
    return all(torch.equal(tensor, other[field]) for field, tensor in one.items())


def _join(table: Any, head: Any) -> None:
    """Makes `head` multiply by the weight that `table` looks up its rows in."""
    move(table, head)
    _keep_buffers(head)


def _keep_buffers(head: Any) -> None:
    """Makes the reload in progress, if any, end with the packed weight that `head` has."""
    if reload := _reload_of(head):
        own = head._buffers.items()
        reload[1].update((name, each) for name, each in own if name.startswith(PREFIX))
