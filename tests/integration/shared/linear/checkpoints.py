"""Layers of quantised checkpoints, one per scheme that an engine knows: HK computes what the
checkpoint's own numbers say, shard by shard."""

from __future__ import annotations

import torch

from hk_backend.engine.linear.route import is_attached
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.shared.linear.engine import LinearEngine
from tests.integration.shared.linear_checkpoints import CHECKPOINTS, WIDTHS, Checkpoint, K


def x_of(k: int = K) -> torch.Tensor:
    return torch.randn(9, k, generator=torch.Generator().manual_seed(1)).bfloat16()


def assert_shards(out: torch.Tensor, expected: torch.Tensor, widths: list[int]) -> None:
    """Shard by shard: the first's values would hide the third's, which are much smaller."""
    assert out.dtype == torch.bfloat16
    for part, truth in zip(out.split(widths, -1), expected.split(widths, -1), strict=True):
        assert largest_error(part, truth) <= tolerance(torch.bfloat16)


def test_every_shard_by_its_own_scale(engine: LinearEngine, any_checkpoint: Checkpoint) -> None:
    shards = any_checkpoint.tensors()
    config = engine.config_of(any_checkpoint.config)
    layer = engine.load(engine.merged(config, torch.bfloat16, K, WIDTHS), shards)
    layer.quant_method.process_weights_after_loading(layer)  # again: there is nothing to do
    assert is_attached(layer)
    held = sum(parameter.numel() for parameter in layer.parameters())
    assert held == 0, "the checkpoint's own tensors are still there"
    expected = any_checkpoint.expected(x_of(), shards)
    assert_shards(engine.forward(layer, x_of()), expected, WIDTHS)


def test_one_scale_for_all_shards_would_be_seen() -> None:
    """The tolerance above tells per-shard scales from an engine's requantised ones."""
    checkpoint = CHECKPOINTS["fp8-dynamic"]
    shards = checkpoint.tensors()
    largest = torch.stack(shards["weight_scale"]).max()
    requantised = [
        (weight.float() * scale / largest).to(torch.float8_e4m3fn)
        for weight, scale in zip(shards["weight"], shards["weight_scale"], strict=True)
    ]
    theirs = checkpoint.expected(x_of(), {"weight": requantised, "weight_scale": [largest] * 3})
    expected = checkpoint.expected(x_of(), shards)
    assert largest_error(theirs[:, -128:], expected[:, -128:]) > tolerance(torch.bfloat16)


__all__ = [name for name in globals() if name.startswith("test_")]
