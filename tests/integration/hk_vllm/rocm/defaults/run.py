"""Runs one cell of the matrix of defaults through the attention backend that vLLM chose.

Builder, cache, writer and implementation are the backend's own. HK is around it, with its kernels
in the emulator.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hk_backend.routing.routes import RouteCounters
from tests.integration.hk_vllm.attention.batch import Batch, Layer, Shape
from tests.integration.hk_vllm.rocm.parents import Parent
from tests.integration.hk_vllm.rocm.rocm_layer import rocm_layer, round_to_fp8
from tests.integration.shared.defaults.cells import Cell, judge
from tests.integration.shared.defaults.models import Attention
from tests.integration.shared.defaults.traffic import AUTO, CHECKPOINT, E5M2

QUANTISED = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "config_groups": {},
    "ignore": [],
    "kv_cache_scheme": {
        "num_bits": 8,
        "type": "float",
        "strategy": "tensor",
        "symmetric": True,
        "dynamic": False,
    },
}
"""llm-compressor's entry in a checkpoint's configuration: its scheme alone makes the cache FP8."""
NO_E5M2 = "Unsupported data type of kv cache: fp8_e5m2"
"""The error of the writers of all backends but TRITON_ATTN, which stores e4m3."""


def hold(cell: Cell, parent: Parent, counters: RouteCounters) -> str:
    """Run the cell's traffic, and check counters and outputs.

    Returns the reason if vLLM does not serve the cell at all.
    """
    if cell.traffic.cache == E5M2 and parent.member != "TRITON_ATTN":
        with pytest.raises(RuntimeError, match=NO_E5M2):
            run(cell, parent)
        return f"vLLM itself: {NO_E5M2}"
    batches = run(cell, parent)
    judge(cell, counters)
    for batch in batches:
        batch.check(**cell.attention.mask())
    return ""


def run(cell: Cell, parent: Parent) -> list[Batch]:
    """Run every step of the cell's traffic."""
    layer, traffic = layer_of(cell, parent), cell.traffic
    batches = []
    for seed, rows in enumerate(traffic.steps):
        batch = Batch(layer, rows, seed, template=traffic.template)
        if traffic.cache != AUTO:
            round_to_fp8(batch, parent)
        batch.run()
        batches.append(batch)
    return batches


def layer_of(cell: Cell, parent: Parent) -> Layer:
    """The layer, as a model constructs it."""
    of, cache = cell.attention, cell.traffic.cache
    return rocm_layer(
        parent,
        wrapped=True,
        dtype=torch.bfloat16,
        cache_dtype=AUTO if cache == CHECKPOINT else cache,
        drafts=cell.traffic.drafts,
        shape=Shape(of.num_heads, of.num_kv_heads, of.head_size, parent.block_size),
        **arguments(of),
        **(quantised() if cache == CHECKPOINT else {}),
    )


def arguments(of: Attention) -> dict[str, Any]:
    """Arguments that a model hands its `Attention` only if it has windows or sinks."""
    given: dict[str, Any] = {}
    if of.window is not None:
        given["per_layer_sliding_window"] = of.window
    if of.sinks:
        given["sinks"] = of.mask()["sinks"]
    return given


def quantised() -> dict[str, Any]:
    from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import (
        CompressedTensorsConfig,
    )

    return {"quant_config": CompressedTensorsConfig.from_config(QUANTISED)}
