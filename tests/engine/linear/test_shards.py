"""The parts of a merged layer's tensors, where blocks of scales end within a shard."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hk_backend.engine.linear.shards import CheckpointError, shards_of
from hk_backend.engine.linear.unset import UNSET, check_scales

GATE_UP = "model.layers.0.mlp.gate_up_proj"


def layer_of(widths: list[int]) -> Any:
    return SimpleNamespace(prefix=GATE_UP, logical_widths=widths)


def weight_of(widths: list[int]) -> torch.Tensor:
    return torch.zeros(sum(widths), 128, dtype=torch.float8_e4m3fn)


@pytest.mark.parametrize(
    ("widths", "rows"),
    [
        ([128, 256], [[0], [1, 2]]),
        ([64, 64], [[0], [0]]),
        ([192, 192], [[0, 1], [1, 2]]),
        ([128, 200], [[0], [1, 2]]),
    ],
)
def test_each_shard_has_every_block_that_it_touches(
    widths: list[int], rows: list[list[int]]
) -> None:
    blocks = torch.arange(-(-sum(widths) // 128)).float()[:, None]
    found = [scales.flatten().tolist() for _, scales in shards_of(
        layer_of(widths), weight_of(widths), blocks)]  # fmt: skip
    assert found == rows


def test_a_missing_scale_of_a_partial_block_is_named() -> None:
    """Up's scale is missing: it shares its only block with gate, or has none that is set."""
    layer, weight = layer_of([128, 64]), weight_of([128, 64])
    scales = torch.tensor([[1.0], [UNSET]])
    with pytest.raises(CheckpointError, match=r"0\.mlp\.up_proj\.weight_scale: not in the check"):
        check_scales(layer, weight, scales, "weight_scale")
    check_scales(layer, weight, torch.ones(2, 1), "weight_scale")
