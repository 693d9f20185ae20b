"""One attention layer of a ROCm backend on CPU tensors, its cache laid out as vLLM lays it out."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from vllm.utils.import_utils import resolve_obj_by_qualname
from vllm.v1.kv_cache_interface import (
    KVCacheLayout,
    KVCacheTensor,
    compute_layer_kv_cache_shape_bytes,
    compute_layout_strides,
    create_kv_cache_views,
)

from tests.integration.hk_vllm.attention.batch import (
    LAYER_NAME,
    SHAPE,
    Batch,
    Layer,
    Shape,
    vllm_config,
    with_drafts,
)
from tests.integration.hk_vllm.rocm.parents import Parent
from tests.integration.hk_vllm.rocm.torch_kernels import FP8

FP8_NAN = 0x7F
SCALES = (0.5, 2.0)
"""Scales of an FP8 cache's keys and values: powers of two, so that scaling rounds nothing."""


def rocm_layer(
    parent: Parent,
    *,
    wrapped: bool,
    dtype: torch.dtype = torch.float32,
    cache_dtype: str = "auto",
    drafts: int = 0,
    shape: Shape = SHAPE,
    **arguments: Any,
) -> Layer:
    """A layer over `parent`, alone or with HK around it; `arguments`: more of vLLM's `Attention`.

    Its cache is the view that vLLM's own allocator makes of the second of two layers.
    """
    backend = resolve_obj_by_qualname(parent.hk_path if wrapped else parent.path)
    config = vllm_config(dtype, shape)
    if drafts:
        config = with_drafts(config, drafts)
    config.cache_config.cache_dtype = cache_dtype
    layer = Layer(backend, dtype, config, arguments, shape=shape)
    spec = backend.customize_spec(layer.module.get_kv_cache_spec(config))
    layout = KVCacheLayout[parent.layout]
    names = ["another layer", LAYER_NAME]
    strides = compute_layout_strides(spec, layer.num_blocks, len(names), layout)
    size = len(names) * prod(compute_layer_kv_cache_shape_bytes(spec, layer.num_blocks))
    place = KVCacheTensor(size, names, layer_stride=strides[0], block_stride=strides[1])
    memory = torch.zeros(size, dtype=torch.int8)
    layer.kv_cache = create_kv_cache_views(memory, spec, layer.num_blocks, layout, place)[1]
    layer.module.kv_cache = layer.kv_cache
    if layer.module.kv_cache_dtype.startswith("fp8"):
        layer.unwritten = FP8_NAN
        set_scales(layer.module)
    return layer


def set_scales(module: Any) -> None:
    """Set the scales of an FP8 cache: the checkpoint's, if it has some, or the engine's own."""
    checkpoint = getattr(module, "quant_method", None)
    if checkpoint is None:
        module._k_scale.fill_(SCALES[0])
        module._v_scale.fill_(SCALES[1])
        return
    for scale, value in zip((module.k_scale, module.v_scale), SCALES, strict=True):
        scale.data.fill_(value)
    checkpoint.process_weights_after_loading(module)


def round_to_fp8(batch: Batch, parent: Parent) -> None:
    """Round keys and values of a batch, new ones included, to the numbers that an FP8 cache holds.

    AITER's shuffled kernels take every scale for 1 (`reshape_and_cache_shuffle_kernel`).
    """
    k_scale, v_scale = (1.0, 1.0) if parent.shuffled else SCALES

    def rounded(tensor: torch.Tensor, scale: float) -> torch.Tensor:
        return ((tensor / scale).to(FP8).float() * scale).to(tensor.dtype)

    batch.keys = [rounded(key, k_scale) for key in batch.keys]
    batch.values = [rounded(value, v_scale) for value in batch.values]
    batch.key, batch.value = rounded(batch.key, k_scale), rounded(batch.value, v_scale)
