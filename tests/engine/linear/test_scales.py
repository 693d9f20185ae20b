"""FP8 scales of a checkpoint's shards."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from hk_backend.engine.linear.scales import as_channels
from hk_backend.engine.linear.shards import CheckpointError
from hk_backend.engine.linear.unset import UNSET


def qkv() -> SimpleNamespace:
    return SimpleNamespace(prefix="0.attn.qkv_proj", logical_widths=[2, 1, 1])


def test_each_channel_has_the_scale_of_its_shard() -> None:
    assert as_channels(qkv(), torch.tensor([1.0, 2.0, 3.0])).tolist() == [1.0, 1.0, 2.0, 3.0]


def test_one_scale_of_a_merged_tensor_is_that_of_all_shards() -> None:
    assert as_channels(qkv(), torch.tensor([2.0, UNSET, UNSET])).tolist() == [2.0] * 4


@pytest.mark.parametrize(
    ("scales", "missing"),
    [([UNSET, 2.0, 3.0], "q"), ([1.0, UNSET, 3.0], "k"), ([1.0, 2.0, UNSET], "v")],
)
def test_a_shard_without_a_scale_is_named(scales: list[float], missing: str) -> None:
    with pytest.raises(CheckpointError, match=rf"^0\.attn\.{missing}_proj\.weight_scale: not in"):
        as_channels(qkv(), torch.tensor(scales))
