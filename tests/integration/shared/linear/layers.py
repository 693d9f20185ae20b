"""Unquantised layers of either engine, and checks of merged layers."""

from __future__ import annotations

from typing import Any

import torch

from hk_backend import reference
from hk_backend.engine.linear.route import is_attached
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.shared import checkpoints
from tests.integration.shared.checkpoints import Scheme, Shards
from tests.integration.shared.linear.engine import LinearEngine
from tests.ops.linear_cases import Layer
from tests.ops.linear_oracle import check_result

K, WIDTHS = 72, [40, 24]
FORMATS = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
KIND = f"linear bf16 {sum(WIDTHS)}x{K} from bfloat16"
"""The name of the unquantised layer's kind in measurements."""


def values(shape: tuple[int, ...], dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def weights(seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> list[torch.Tensor]:
    return [values((width, K), dtype, seed + width) for width in WIDTHS]


def unloaded(engine: LinearEngine, dtype: torch.dtype = torch.bfloat16, k: int = K) -> Any:
    return engine.merged(None, dtype, k, WIDTHS, prefix="model.gate_up_proj")


def loaded(engine: LinearEngine, dtype: torch.dtype = torch.bfloat16) -> Any:
    return engine.load(unloaded(engine, dtype), {"weight": weights(dtype=dtype)})


def assert_computes(layer: Any, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
    x = values((5, weight.shape[1]), weight.dtype, seed=9)
    expected = reference.linear(x, weight, FORMATS[weight.dtype], bias=bias)
    out = layer.quant_method.apply(layer, x, bias)
    assert largest_error(out, expected) <= tolerance(weight.dtype)


def layer_of(engine: LinearEngine, scheme: Scheme, shards: Shards | None = None) -> Any:
    """A merged layer of a checkpoint that holds `shards`, by default the scheme's."""
    config = engine.config_of(scheme.config)
    layer = engine.merged(config, torch.bfloat16, checkpoints.K, checkpoints.WIDTHS)
    return engine.load(layer, shards or scheme.tensors())


def check_shards(expected: list[Layer], out: torch.Tensor) -> None:
    """Hold that each element of each shard is within the bound of its format."""
    widths = [len(shard.weight) for shard in expected]
    for shard, part in zip(expected, out.split(widths, -1), strict=True):
        check_result(shard, part.contiguous())


def left(engine: LinearEngine, layer: Any) -> str:
    """Why the engine computes `layer`, after a check that it does."""
    assert not is_attached(layer)
    return engine.why_left(layer)
