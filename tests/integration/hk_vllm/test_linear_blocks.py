"""FP8 in 128x128 blocks where merged shards end within a block: vLLM's `fp8` method takes them, and
stores scales where no kernel finds them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_vllm.linear import created, model
from vllm.model_executor.kernels.linear.scaled_mm.cpu import (
    CPUFp8BlockScaledMMKernel,
    CPUFp8W8A8BlockScaledMMKernel,
)

from hk_backend import reference
from hk_backend.engine.linear.route import is_attached
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.hk_vllm.linear_layers import config_of, load, merged
from tests.integration.shared.checkpoints import LAYERS, K

pytestmark = pytest.mark.usefixtures("linear_route")


def layer_of(widths: list[int]) -> Any:
    config = config_of(LAYERS["fp8-block"].config)
    return merged(config, torch.bfloat16, K, widths, prefix="model.gate_up_proj")


@pytest.mark.parametrize("widths", [[128, 96], [256, 8], [128, 128, 40]], ids=str)
def test_only_the_last_ends_within_a_block(widths: list[int]) -> None:
    generator = torch.Generator().manual_seed(1)
    weights = [
        (torch.randn(width, K, generator=generator) * 50).to(torch.float8_e4m3fn)
        for width in widths
    ]
    scales = [
        (1 + torch.rand(-(-width // 128), 2, generator=generator)) * 10.0**-index
        for index, width in enumerate(widths)
    ]
    layer = load(layer_of(widths), {"weight": weights, "weight_scale_inv": scales})
    assert is_attached(layer)
    x = torch.randn(5, K, generator=generator).bfloat16()
    for part, weight, scale in zip(layer(x).split(widths, -1), weights, scales, strict=True):
        truth = reference.linear(x, weight, "fp8_e4m3fn", scale, activations="token_block")
        assert largest_error(part, truth) <= tolerance(torch.bfloat16)


@pytest.mark.parametrize("widths", [[192, 128], [96, 96], [224, 224], [128, 64, 64]], ids=str)
def test_a_block_that_shards_share(widths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where another than the last ends within a block. vLLM has a kernel for blocks on processors
    with AMX; on others it stops, as it would without HK, and its error says what to do."""
    why = (
        f"merged shards of {' and '.join(map(str, widths))} output features do not end on blocks of"
        " 128: quantise the model with a scale per output channel instead"
    )
    for has in (True, False):
        for kernel in (CPUFp8W8A8BlockScaledMMKernel, CPUFp8BlockScaledMMKernel):
            monkeypatch.setattr(kernel, "is_supported", lambda *_, has=has: (has, "no AMX"))
        if has:
            assert model.why_left(layer_of(widths)) == why
    with pytest.raises(ValueError, match=f"HKFp8BlockLinearKernel {why}"):
        layer_of(widths)


def test_a_shard_that_another_rank_continues() -> None:
    """vLLM counts whole blocks for each rank."""
    layer = SimpleNamespace(allow_fp8_block_shape_mismatch=True, output_partition_sizes=[128, 96])
    assert created.blocks_verdict_on(layer)
    layer.tp_size = 2
    assert not created.blocks_verdict_on(layer)
