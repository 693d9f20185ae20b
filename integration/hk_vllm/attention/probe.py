"""Layers over a parent that computes nothing, for `hk-backend bench launch`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionImpl,
    AttentionMetadataBuilder,
    CommonAttentionMetadata,
)

from hk_vllm.attention.backend import wrap
from hk_vllm.attention.batch import one_batch
from hk_vllm.attention.cache_forms import FORMS

BLOCK_SIZE, NUM_BLOCKS = 16, 4


@dataclass
class Metadata:
    """Metadata of the parent."""

    num_actual_tokens: int


class Builder(AttentionMetadataBuilder[Metadata]):  # type: ignore[misc]
    def build(
        self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False
    ) -> Metadata:
        return Metadata(common_attn_metadata.num_actual_tokens)


class Impl(AttentionImpl[Metadata]):  # type: ignore[misc]
    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = "decoder",
        kv_sharing_target_layer_name: str | None = None,
    ) -> None:
        self.num_heads, self.head_size, self.scale = num_heads, head_size, scale
        self.num_kv_heads = num_kv_heads or num_heads

    def forward(self, *arguments: Any, **named: Any) -> None:
        """Does nothing, as HK's way to its launch is what is measured."""

    def do_kv_cache_update(
        self,
        layer: Any,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:
        """Writes to `[B, H, N, 2D]`, as HK proves a cache before it reads it."""
        block, token = slot_mapping // BLOCK_SIZE, slot_mapping % BLOCK_SIZE
        kv_cache[block, :, token] = torch.cat([key, value], dim=2)


class Backend(AttentionBackend):  # type: ignore[misc]
    @staticmethod
    def get_name() -> str:
        return "NOTHING"

    @staticmethod
    def get_impl_cls() -> type[Impl]:
        return Impl

    @staticmethod
    def get_builder_cls() -> type[Builder]:
        return Builder


def layers(rows: tuple[tuple[int, int], ...], shape: Any, count: int) -> list[Callable[[], object]]:
    """Returns the forwards of `count` layers in a step with `rows` (query and cached tokens)."""
    backend = wrap(Backend, FORMS["TRITON_ATTN"], "HK_NOTHING", measured=False)
    config = VllmConfig()
    before = torch.get_default_dtype()
    torch.set_default_dtype(shape.dtype)
    try:
        with set_current_vllm_config(config):
            impls = [_impl(backend, shape) for _ in range(count)]
            names = [f"layers.{index}" for index in range(count)]
            config.compilation_config.static_forward_context.update(
                {name: SimpleNamespace(impl=impl) for name, impl in zip(names, impls, strict=True)}
            )
            spec = SimpleNamespace(block_size=BLOCK_SIZE)
            builder = backend.get_builder_cls()(spec, names, config, torch.device("cpu"))
    finally:
        torch.set_default_dtype(before)
    metadata = builder.build(0, _batch(rows))
    return [_forward(impl, shape, rows, metadata) for impl in impls]


def _impl(backend: Any, shape: Any) -> Any:
    scale = shape.head_size**-0.5
    return backend.get_impl_cls()(shape.num_heads, shape.head_size, scale, shape.num_kv_heads)


def _batch(rows: tuple[tuple[int, int], ...]) -> CommonAttentionMetadata:
    blocks = -(-max(query + cached for query, cached in rows) // BLOCK_SIZE)
    table = torch.zeros(len(rows), blocks, dtype=torch.int32)
    slots = torch.zeros(sum(query for query, _ in rows), dtype=torch.int64)
    return one_batch(rows, table, slots, torch.device("cpu"))


def _forward(
    impl: Any, shape: Any, rows: tuple[tuple[int, int], ...], metadata: Any
) -> Callable[[], object]:
    tokens = sum(query for query, _ in rows)
    heads = (shape.num_heads, shape.num_kv_heads, shape.num_kv_heads)
    fused = torch.zeros(tokens, sum(heads), shape.head_size, dtype=shape.dtype)
    query, key, value = fused.split(heads, dim=1)
    output = torch.empty(tokens, shape.num_heads, shape.head_size, dtype=shape.dtype)
    layer = SimpleNamespace(_k_scale=torch.ones(()), _v_scale=torch.ones(()))
    cache = (NUM_BLOCKS, shape.num_kv_heads, BLOCK_SIZE, 2 * shape.head_size)
    kv_cache = torch.zeros(cache, dtype=shape.dtype)
    forward = impl.forward
    return lambda: forward(layer, query, key, value, kv_cache, metadata, output)
