"""Unquantised layers: HK computes inside SGLang's own method for them.

The method is patched on its class. This also covers layers that a quantised checkpoint leaves
unquantised. A layer's weight is packed when SGLang has loaded it, and SGLang's copy is released at
once, layer by layer.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod
from sglang.srt.layers.vocab_parallel_embedding import VocabParallelEmbedding

from hk_backend.engine.foreign import foreign_method
from hk_backend.engine.linear.packed_layer import FORMAT_OF, is_released, pack_layer
from hk_backend.engine.linear.route import apply, is_attached, packed_or
from hk_backend.engine.linear.shards import shard_widths
from hk_backend.engine.patching import MARK, replace, wrap
from hk_backend.ops import linear
from hk_backend.terms.packed_weight import PackedWeight
from hk_sglang.linear.arrivals import arrived_shards, releasing
from hk_sglang.linear.contest import why_slower
from hk_sglang.linear.head import repack
from hk_sglang.linear.layer import READ, read_by_models, why_not_packed

REPLACED = "apply", "apply_with_addend", "apply_into", "process_weights_after_loading"
"""Names of the methods that HK replaces."""


def install() -> None:
    """Changes the method; harmless to call again."""
    method = UnquantizedLinearMethod
    wrap(method, "process_weights_after_loading", _process_loaded)
    replace(method, "apply", packed_or)
    wrap(method, "apply_with_addend", _apply_with_addend)
    wrap(method, "apply_into", _apply_into)


def _process_loaded(original: Any, method: Any, layer: Any) -> None:
    if isinstance(layer, VocabParallelEmbedding):  # an LM head, which keeps its table
        original(method, layer)
        repack(layer)
        return
    if is_released(layer):
        return  # packed by an earlier call, and nothing was loaded since
    layer.hk_left = why_left(method, layer)
    if layer.hk_left:
        original(method, layer)
    else:
        _pack(layer)


def _apply_with_addend(
    original: Any, method: Any, layer: Any, x: Any, addend: Any, bias: Any = None
) -> Any:
    if is_attached(layer):
        return apply(layer, x, bias).add_(addend)
    return original(method, layer, x, addend, bias)


def _apply_into(
    original: Any, method: Any, layer: Any, x: Any, output: Any, bias: Any = None
) -> Any:
    if is_attached(layer):
        return output.copy_(apply(layer, x, bias))
    return original(method, layer, x, output, bias)


def why_left(method: Any, layer: Any) -> str:
    """Reason why SGLang computes `layer`; empty if HK does."""
    weight = layer.weight
    if is_attached(layer):
        return ""  # new weights in a layer that compiled graphs call as HK's
    if not hasattr(type(method).apply, MARK):
        return f"{type(method).__name__} does its own multiplication"
    if why := foreign_method(type(method), "sglang", *REPLACED):
        return why
    if weight.dim() != 2:
        return f"a weight with {weight.dim()} axes"
    if read_by_models(layer):
        return READ
    return why_not_packed(weight) or why_slower(layer)


def _pack(layer: Any) -> None:
    weight = layer.weight.data
    if is_attached(layer):
        _keep_others(layer, weight)
    with releasing(layer, "weight", whole=_process):
        pack_layer(layer, weight, FORMAT_OF[weight.dtype])


def _process(layer: Any) -> None:
    layer.quant_method.process_weights_after_loading(layer)


def _keep_others(layer: Any, weight: torch.Tensor) -> None:
    """Restores, from the packed weight, the shards of a layer that an update leaves alone."""
    widths = shard_widths(layer) or [len(weight)]
    kept = [index for index in range(len(widths)) if index not in arrived_shards(layer)]
    if kept:
        held = unpacked(layer).split(widths)
        for index in kept:
            weight.split(widths)[index].copy_(held[index])


def unpacked(layer: Any) -> torch.Tensor:
    """The weight `[N, K]` that `layer` was packed from.

    The product with the identity is exact, as each of its sums has one term.
    """
    packed: PackedWeight = layer.__dict__["hk_packed"]
    identity = torch.eye(packed.k, dtype=layer.weight.dtype, device=packed.data.device)
    return linear(identity, packed).t()
