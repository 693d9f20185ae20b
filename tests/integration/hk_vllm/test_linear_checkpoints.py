"""Layers of quantised checkpoints, one per scheme that vLLM knows: HK computes what the
checkpoint's own numbers say, shard by shard."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from vllm.model_executor.utils import weights_already_processed

from hk_backend import reference
from hk_backend.engine.linear.route import is_attached
from hk_backend.quantize.recipe import RECIPES
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.hk_vllm.linear_layers import config_of, load, merged
from tests.integration.shared.linear.checkpoints import *  # noqa: F403
from tests.integration.shared.linear.devices import DEVICES, unserved
from tests.integration.shared.linear_checkpoints import CHECKPOINTS, WIDTHS, K

BF16 = torch.bfloat16


pytestmark = pytest.mark.usefixtures("linear_route")


def test_weights_that_are_processed_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's weight cache hands over runtime tensors: HK must not read them as a checkpoint's."""
    checkpoint = CHECKPOINTS["fp8-dynamic"]
    layer = merged(config_of(checkpoint.config), torch.bfloat16, K, WIDTHS)
    read: list[Any] = []
    kernel = layer.quant_method.fp8_linear
    monkeypatch.setattr(kernel, "process_checkpoint", read.append)
    with weights_already_processed():
        load(layer, checkpoint.tensors())
    assert not read
    load(layer, checkpoint.tensors())
    assert read == [layer]


@pytest.mark.parametrize(
    ("device", "name"),
    [
        (device, name)
        for device in DEVICES
        for name, recipe in RECIPES.items()
        if "mxfp6" not in name and not unserved(device, recipe.granularity)
    ],
    indirect=["device"],
)
def test_what_quantize_writes(device: str, name: str) -> None:
    """`hk-backend quantize --format NAME`: vLLM reads weights and activations as written."""
    recipe, widths, k = RECIPES[name], [256, 128, 128], 256
    generator = torch.Generator().manual_seed(0)
    parts = [
        recipe.quantize((torch.randn(n, k, generator=generator) * 4.0**shard).bfloat16())
        for shard, n in enumerate(widths)
    ]
    activations = recipe.activations[0]
    layer = merged(config_of(recipe.quantization_config(activations, [])), BF16, k, widths)
    stored = [part.name for part in recipe.stored(widths[0], k)]
    load(layer, {suffix: [part[i] for part in parts] for i, suffix in enumerate(stored)})
    assert is_attached(layer)
    x = torch.randn(9, k, generator=generator).bfloat16()
    x[:, :128] *= 64  # a scale per token instead of 128 channels rounds the others more coarsely
    out = layer(x)
    for part, (codes, scales) in zip(out.split(widths, -1), parts, strict=True):
        truth = reference.linear(x, codes, recipe.format, scales, activations=activations)
        assert largest_error(part, truth) <= tolerance(BF16)
