"""Layers over a parent that computes nothing, for `hk-backend bench launch`.

The write to the KV pool is left out, as it is the pool's own with HK and without.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.runtime_context import get_context

from hk_sglang.attention.backend import wrapper_of
from hk_sglang.attention.batch import one_batch
from hk_sglang.attention.hk_attention import HKAttention

PAGE_SIZE = 16
PARENT = "triton"
"""SGLang's name of the parent, which decides how HK reads the pool."""


class Parent:
    """A backend that computes nothing."""

    forward_metadata = None

    def __init__(self, pool: Any, tables: Any) -> None:
        self.token_to_kv_pool, self.req_to_token_pool = pool, tables

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Does nothing."""

    def forward_extend(self, q: torch.Tensor, *arguments: Any, **named: Any) -> torch.Tensor:
        """Returns the query unchanged."""
        return q


def layers(rows: tuple[tuple[int, int], ...], shape: Any, count: int) -> list[Callable[[], object]]:
    """Returns the forwards of `count` layers in a step with `rows` (query and cached tokens)."""
    configuration = get_context().override_server_args(device="cpu")
    configuration.install()
    try:
        model = torch.nn.ModuleList(_layer(shape, index) for index in range(count))
        pool = MHATokenToKVPool(
            4 * PAGE_SIZE,
            page_size=PAGE_SIZE,
            dtype=shape.dtype,
            head_num=shape.num_kv_heads,
            head_dim=shape.head_size,
            layer_num=count,
            device="cpu",
            enable_memory_saver=False,
        )
        longest = max(query + cached for query, cached in rows)
        tables = SimpleNamespace(req_to_token=torch.zeros(len(rows), longest, dtype=torch.int32))
        backend: Any = Parent(pool, tables)
        runner = SimpleNamespace(dtype=shape.dtype, device="cpu", model=model)
        backend.hk = HKAttention(backend, PARENT, runner, measured=False)
        backend.__class__ = wrapper_of(Parent)
    finally:
        configuration.restore()
    slots = torch.zeros(sum(query for query, _ in rows), dtype=torch.int64)
    decodes = all(query == 1 and cached for query, cached in rows)
    mode = ForwardMode.DECODE if decodes else None
    batch = one_batch(rows, torch.arange(len(rows)), slots, mode)
    backend.init_forward_metadata(batch)
    forward = backend.forward_decode if decodes else backend.forward_extend
    return [_forward(forward, layer, shape, batch) for layer in model]


def _layer(shape: Any, index: int) -> Any:
    scale = shape.head_size**-0.5
    return RadixAttention(
        shape.num_heads, shape.head_size, scale, shape.num_kv_heads, layer_id=index
    )


def _forward(
    forward: Callable[..., object], layer: Any, shape: Any, batch: Any
) -> Callable[[], object]:
    tokens = len(batch.input_ids)
    heads = (shape.num_heads, shape.num_kv_heads, shape.num_kv_heads)
    fused = torch.zeros(tokens, sum(heads) * shape.head_size, dtype=shape.dtype)
    q, k, v = fused.split([count * shape.head_size for count in heads], dim=1)
    key, value = (each.unflatten(1, (shape.num_kv_heads, shape.head_size)) for each in (k, v))
    return lambda: forward(q, key, value, layer, batch, save_kv_cache=False)
