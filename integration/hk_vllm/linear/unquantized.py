"""Unquantised layers: HK computes inside vLLM's own methods for them.

The methods are patched on their classes. This also covers layers that a quantised checkpoint leaves
unquantised. A layer's weight is packed when vLLM has loaded it, and vLLM's copy is released at
once, layer by layer. The LM head keeps its table (head.py). Before the first layer of a kind is
packed, HK is measured beside vLLM's method (layer.py).
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from vllm.model_executor.layers import utils
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    UnquantizedEmbeddingMethod,
    VocabParallelEmbedding,
)
from vllm.model_executor.utils import is_weights_pre_processed
from vllm.platforms import current_platform

from hk_backend.engine.foreign import foreign, foreign_method
from hk_backend.engine.linear.contest import unquantised_sides
from hk_backend.engine.linear.packed_layer import FORMAT_OF, is_released, pack_layer, release
from hk_backend.engine.linear.route import is_attached, packed_or
from hk_backend.engine.linear.shared_table import in_head_or, is_empty
from hk_backend.engine.patching import MARK, replace, wrap
from hk_backend.ops import LinearRequest
from hk_vllm.linear import head, tied
from hk_vllm.linear.created import LATENT
from hk_vllm.linear.layer import CONTESTS, device_type, linear_backend, verdict_on

METHODS = UnquantizedLinearMethod, UnquantizedEmbeddingMethod
CHOOSES, PREPARES = "dispatch_unquantized_gemm", "dispatch_cpu_unquantized_gemm"
"""Names of vLLM's functions that choose these methods' product, and pack a weight for it."""


def install() -> None:
    """Changes both methods; harmless to call again."""
    for method in METHODS:
        wrap(method, "process_weights_after_loading", _process)
        replace(method, "apply", packed_or)
    replace(UnquantizedEmbeddingMethod, "embedding", in_head_or)


def _process(original: Any, method: Any, layer: Any) -> None:
    tied.note_embedding(layer)
    if is_released(layer) or is_empty(layer):
        return  # packed by an earlier call, and nothing was loaded since
    layer.hk_left = _why_left(method, layer)
    if layer.hk_left == "":
        _pack(layer)
    else:
        original(method, layer)


def pack_table(table: Any) -> None:
    """Packs an embedding that its model uses as LM head, if HK serves it.

    This is known only when all is loaded, so vLLM's own preparation of the table is dropped.
    """
    method = table.quant_method
    if isinstance(method, UnquantizedEmbeddingMethod) and not is_attached(table):
        table.hk_left = _why_left(method, table, is_head=True)
        if table.hk_left == "":
            _pack(table)
            table.__dict__.pop("cpu_linear", None)


def _why_left(method: Any, layer: Any, is_head: bool = False) -> str | None:
    """Reason why vLLM computes `layer`; empty if HK does; None if it is no linear layer."""
    weight = layer.weight
    if is_attached(layer):
        return ""  # new weights in a layer that compiled graphs call as HK's
    is_head = is_head or isinstance(layer, ParallelLMHead)
    if isinstance(method, UnquantizedEmbeddingMethod) and not is_head:
        return None  # a lookup table
    if weight.is_meta:
        return None  # another pipeline stage's
    if not hasattr(type(method).apply, MARK):
        return f"{type(method).__name__} does its own multiplication"
    if why := foreign_method(type(method), "vllm", "apply", "process_weights_after_loading"):
        return why
    if why := _foreign_product(method):
        return why
    if weight.dim() != 2:
        return f"a weight with {weight.dim()} axes"
    if getattr(layer, "_cpu_skip_gemm_dispatch", False):
        return LATENT
    if is_weights_pre_processed():
        return "weights that another process has prepared for vLLM"
    if linear_backend() != "auto":
        return f"--linear-backend {linear_backend()}"
    if is_head and (why := head.why_in_another_dtype(weight.dtype)):
        return why
    format = FORMAT_OF.get(weight.dtype)
    if format is None:
        return f"a weight in {weight.dtype}"
    if is_head and head.format_of(layer) != format:
        return ""  # requested, and checked
    request = LinearRequest(device_type(), weight.dtype, format, *weight.shape)
    if not (verdict := verdict_on(request)):
        return verdict.why
    theirs = f"{type(method).__name__} on {type(current_platform).__name__}"
    sides = functools.partial(unquantised_sides, method, layer, _stock(method))
    return CONTESTS.why_slower(layer, theirs, request, sides, is_head)


def _foreign_product(method: Any) -> str:
    """Reason to leave `method` to vLLM: it multiplies by another plugin's function; or empty."""
    own = sys.modules[_stock(method).__module__]  # has its own name for the function that chooses
    for module, name in ((own, CHOOSES), (utils, PREPARES)):
        if found := foreign(getattr(module, name, None), "vllm"):
            return f"{name} is another plugin's: {found}"
    product = getattr(method, "_gemm_impl", None) or getattr(own, CHOOSES)()
    found = foreign(product, "vllm")
    return f"the product of {type(method).__name__} is another plugin's: {found}" if found else ""


def _stock(method: Any) -> Any:
    """The class of vLLM's own that `method` is of."""
    return next(each for each in METHODS if isinstance(method, each))


def _pack(layer: Any) -> None:
    if isinstance(layer, VocabParallelEmbedding):
        tied.pack(layer, head.format_of(layer))
    else:
        pack_layer(layer, layer.weight.data, FORMAT_OF[layer.weight.dtype])
    if isinstance(layer.quant_method, UnquantizedLinearMethod):
        release(layer)
