"""Layers of corrupt checkpoints: HK names the tensor that it cannot read."""

from __future__ import annotations

import pytest
import torch

from tests.integration.hk_vllm.linear_layers import config_of, layer_of, merged
from tests.integration.shared.linear.devices import in_schemes, on_devices
from tests.integration.shared.linear_checkpoints import CHECKPOINTS, WIDTHS, K, Shards

pytestmark = pytest.mark.usefixtures("linear_route")


def refusal(name: str, shards: Shards) -> str:
    with pytest.raises(ValueError) as error:
        layer_of(CHECKPOINTS[name], shards)
    return str(error.value)


SHARDED = [name for name in CHECKPOINTS if not name.startswith("modelopt-mx")]


@in_schemes(CHECKPOINTS, SHARDED)
def test_a_scale_that_is_missing(device: str, name: str) -> None:
    """The scale of the second shard is not in the checkpoint."""
    checkpoint = CHECKPOINTS[name]
    shards = checkpoint.tensors()
    layer = merged(config_of(checkpoint.config), torch.bfloat16, K, WIDTHS)
    for parameter, values in shards.items():
        for index, value in enumerate(values):
            if (parameter, index) != (checkpoint.scale, 1):
                tensor = getattr(layer, parameter)
                tensor.weight_loader(tensor, value, index)
    with pytest.raises(ValueError) as error:
        layer.quant_method.process_weights_after_loading(layer)
    assert str(error.value).startswith(f"model.k_proj.{checkpoint.scale}: not in the checkpoint")


@pytest.mark.parametrize("bad", [0.0, -1.0, torch.nan, torch.inf], ids=str)
@in_schemes(CHECKPOINTS, ["fp8-static", "fp8-block", "compressed-tensors-channel-token"])
def test_a_scale_that_is_none(device: str, name: str, bad: float) -> None:
    checkpoint = CHECKPOINTS[name]
    shards = checkpoint.tensors()
    shards[checkpoint.scale][1].view(-1)[-1] = bad
    found = refusal(name, shards)
    assert found.startswith(f"model.k_proj.{checkpoint.scale}: {bad} at")
    assert "expected positive, finite numbers" in found


@on_devices
@pytest.mark.parametrize("bad", [0.0, torch.nan], ids=str)
def test_an_input_scale_that_is_none(device: str, bad: float) -> None:
    shards = CHECKPOINTS["fp8-static"].tensors()
    shards["input_scale"][1].fill_(bad)
    assert "model.k_proj.input_scale" in refusal("fp8-static", shards)


@pytest.mark.parametrize("name", ["compressed-tensors-mxfp4", "quark-mxfp6-e2m3", "hk_mxfp8"])
def test_an_mx_scale_that_is_nan(name: str) -> None:
    shards = CHECKPOINTS[name].tensors()
    shards["weight_scale"][2][5, 3] = 0xFF
    found = refusal(name, shards)
    assert found.startswith("model.v_proj.weight_scale: code 255 (NaN) at [5, 3]")
