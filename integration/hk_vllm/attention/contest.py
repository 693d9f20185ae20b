"""Times HK's attention beside the backend that it wraps, once for each kind of layer.

The contest is held when vLLM constructs the first layer of a kind. The layer has then not yet said
which fusions it allows, nothing is compiled, and there is no cache. So the parent gets a layer and
a cache of its own for the contest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from math import prod
from typing import Any

import torch
from vllm.config import VllmConfig, get_current_vllm_config
from vllm.model_executor.layers.attention import Attention
from vllm.platforms import current_platform
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts
from vllm.v1.kv_cache_interface import (
    KVCacheTensor,
    compute_layer_kv_cache_shape_bytes,
    compute_layout_strides,
    create_kv_cache_views,
)

from hk_backend.devices import device_for
from hk_backend.engine import loggers
from hk_backend.engine.attention import ROUTE, AttentionRoute
from hk_backend.engine.evidence import Contest, Decision, Kind, decide, planned, prompts_up_to
from hk_backend.terms.attention_step import AttentionStep
from hk_vllm.attention.batch import one_batch
from hk_vllm.ranks import tensor_parallel

NAME = "hk_backend.contest"
"""Name of the parent's own layer among vLLM's attention layers, while it is measured."""


def decide_attention(impl: Any, layer: dict[str, Any]) -> Decision:
    """Decides who computes the prefill of `impl`, constructed with the arguments `layer`.

    The answer depends on the query tokens of a step's longest row (`Decision.why_not`).
    """
    device = device_for(current_platform.device_type).name
    kind = Kind(ROUTE, "vLLM", device, described(impl), impl.hk_parent.get_name())
    if not impl.hk_measured:
        return Decision(kind)
    with torch.inference_mode():  # requests run in this mode
        return decide(kind, lambda: contest(impl, layer), tensor_parallel())


def described(impl: Any) -> str:
    """Readable text of all that decides the speed of a layer."""
    request = impl._hk_request
    dtype = str(request.dtype).removeprefix("torch.")
    heads = f"{request.num_heads}/{request.num_kv_heads} heads of {request.head_size}"
    cap = f"logits capped at {request.logits_soft_cap}" if request.logits_soft_cap else ""
    parts = (
        f"{dtype}, {heads}, causal",
        "" if request.sliding_window is None else f"window of {request.sliding_window}",
        cap,
        "sinks" if request.has_sinks else "",
        "ALiBi" if request.has_alibi else "",
        "" if impl._hk_cache_dtype == "auto" else f"{impl._hk_cache_dtype} cache",
    )
    return ", ".join(filter(None, parts))


def contest(impl: Any, layer: dict[str, Any]) -> Contest:
    """Makes HK's route and the parent compute the same tensors of one fresh prompt."""
    config = get_current_vllm_config()
    prompts = prompts_up_to(largest_step(config))
    parent = Parent(impl, layer, config, prompts[-1])
    inputs = {tokens: tensors(impl, tokens) for tokens in prompts}
    return Contest(
        prompts,
        lambda tokens: ours(impl, inputs[tokens]),
        lambda tokens: parent.call(inputs[tokens], [(tokens, 0)]),
        planned(impl._hk_request),
    )


Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Query, key, value of one prompt."""


def ours(impl: Any, inputs: Inputs) -> Callable[[], torch.Tensor]:
    """A call of HK's route without its checks and counters; `impl` keeps its own route."""
    query, key, value = inputs
    output = torch.empty_like(query, memory_format=torch.contiguous_format)
    tokens = len(query)
    starts = torch.tensor([0, tokens], dtype=torch.int32, device=query.device)
    step = AttentionStep.of(starts, tokens)
    route = AttentionRoute(loggers.of("vllm", "attention"))
    arguments = {"query": query, "key": key, "value": value, "out": output}
    arguments |= impl._hk_layer_arguments
    if impl._hk_sinks is not None:  # their values are not loaded yet
        arguments["sinks"] = torch.zeros(len(impl._hk_sinks), device=query.device)

    def call() -> torch.Tensor:
        route.launch(step, False, (query, key, value, output), lambda: dict(arguments))
        return output

    return call


class Parent:
    """A layer of the backend that HK wraps, as vLLM makes one without HK, with a cache.

    Args:
        impl: HK's implementation for the same layer.
        layer: the arguments that `impl` was constructed with.
        config: vLLM's current configuration.
        longest: tokens that the cache has to hold.
    """

    def __init__(self, impl: Any, layer: dict[str, Any], config: VllmConfig, longest: int) -> None:
        backend = impl.hk_parent
        cache = copy(config.cache_config)
        cache.cache_dtype = layer["kv_cache_dtype"]
        cache.kv_cache_dtype_skip_layers = []
        layers = config.compilation_config.static_forward_context
        try:
            self.layer = Attention(cache_config=cache, **arguments_of(layer, backend))
            self.impl = self.layer.impl
            spec = backend.customize_spec(self.layer.get_kv_cache_spec(config))
            device = torch.device(current_platform.device_type)
            self.builder = backend.get_builder_cls()(spec, [NAME], config, device)
        finally:
            layers.pop(NAME, None)
        self.block_size: int = spec.block_size
        self.kv_cache = allocated(backend, spec, 1 + -(-longest // spec.block_size), device)

    def batch(self, inputs: Inputs, rows: Sequence[tuple[int, int]]) -> CommonAttentionMetadata:
        """A batch of requests with blocks of their own, whose new keys and values are in the cache.

        Args:
            rows: query and cached tokens of each request.
        """
        size = self.block_size
        most = max(-(-sum(row) // size) for row in rows)
        table = 1 + torch.arange(len(rows) * most, dtype=torch.int32).view(len(rows), most)
        slots = [
            size * (1 + index * most) + torch.arange(cached, cached + query)
            for index, (query, cached) in enumerate(rows)
        ]
        query, key, value = inputs
        batch = one_batch(rows, table, torch.cat(slots), query.device)
        self.impl.do_kv_cache_update(self.layer, key, value, self.kv_cache, batch.slot_mapping)
        return batch

    def call(self, inputs: Inputs, rows: Sequence[tuple[int, int]]) -> Callable[[], torch.Tensor]:
        """A call of the parent's forward, with its metadata built and its cache written."""
        query, key, value = inputs
        metadata = self.builder.build(0, self.batch(inputs, rows))
        output = torch.empty_like(query, memory_format=torch.contiguous_format)

        def call() -> torch.Tensor:
            self.impl.forward(self.layer, query, key, value, self.kv_cache, metadata, output=output)
            return output

        return call


def arguments_of(layer: dict[str, Any], backend: Any) -> dict[str, Any]:
    """vLLM's arguments of an `Attention` whose implementation got the arguments `layer`."""
    given = dict(layer)
    for name in ("kv_cache_dtype", "use_alibi_sqrt", "kv_sharing_target_layer_name"):
        given.pop(name, None)
    given["per_layer_sliding_window"] = given.pop("sliding_window")
    if given.get("sinks") is not None:  # their values are not loaded yet
        given["sinks"] = torch.nn.Parameter(torch.zeros_like(given["sinks"]), requires_grad=False)
    return {**given, "prefix": NAME, "attn_backend": backend}


def allocated(backend: Any, spec: Any, blocks: int, device: torch.device) -> torch.Tensor:
    """A cache of `blocks` blocks, `[B, H, N, C]`, in the layout that vLLM prefers for `backend`."""
    layout = get_supported_kv_cache_layouts([backend])[0]
    strides = compute_layout_strides(spec, blocks, 1, layout)
    size = prod(compute_layer_kv_cache_shape_bytes(spec, blocks))
    place = KVCacheTensor(size, [NAME], layer_stride=strides[0], block_stride=strides[1])
    memory = torch.zeros(size, dtype=torch.int8, device=device)
    cache: torch.Tensor = create_kv_cache_views(memory, spec, blocks, layout, place)[0]
    return cache


def tensors(impl: Any, tokens: int) -> Inputs:
    """Random query, key and value, adjacent in memory as a layer's projection leaves them."""
    request, device = impl._hk_request, current_platform.device_type
    heads = (request.num_heads, request.num_kv_heads, request.num_kv_heads)
    generator = torch.Generator(device).manual_seed(tokens)
    shape = (tokens, sum(heads), request.head_size)
    fused = torch.randn(shape, generator=generator, dtype=request.dtype, device=device)
    query, key, value = fused.split(heads, dim=1)
    return query, key, value


def largest_step(config: VllmConfig) -> int:
    """Most query tokens of one prompt in a step."""
    limit: int = config.scheduler_config.max_num_batched_tokens
    return min(limit, largest_context(config) or limit)


def largest_context(config: VllmConfig) -> int:
    """Most keys of a request; 0 if the configuration has no model."""
    return getattr(config.model_config, "max_model_len", None) or 0
