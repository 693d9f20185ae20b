"""Configurations and layers of checkpoints whose weights are rotated, and errors about them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hk_backend.engine.linear.rotated import KEYS, RotationError
from hk_backend.quantize.recipe import RECIPES
from tests.integration.shared.checkpoints import WIDTHS, K
from tests.integration.shared.linear.engine import LinearEngine

NAME = "model.layers.0.self_attn.qkv_proj"
BLOCK = 64


def written(
    activations: str = "mx", rotation: int = BLOCK, format: str = "mxfp4"
) -> dict[str, Any]:
    """The `quantization_config` of `hk-backend quantize`, with a rotation."""
    return RECIPES[format].quantization_config(activations, [], rotation)


def row_parallel(
    engine: LinearEngine,
    config: dict[str, Any],
    number: int,
    tensors: dict[str, torch.Tensor],
    k: int = K,
    ranks: int = 2,
    name: str = "model.o_proj",
    device: str = "cpu",
) -> Any:
    """A layer of `k` input features on rank `number`."""
    with engine.on_rank(number, ranks, device) as make:
        layer = make(
            "RowParallelLinear",
            k,
            WIDTHS[0],
            quant_config=engine.config_of(config),
            prefix=name,
        )
        for called, value in tensors.items():
            parameter = layer.get_parameter(called)
            parameter.weight_loader(parameter, value)
        if tensors:
            layer.quant_method.process_weights_after_loading(layer)
    return layer


def refused(engine: LinearEngine, config: dict[str, Any], k: int = K) -> str:
    """Why the engine stops at a layer of `config`."""
    with pytest.raises(RotationError) as error:
        engine.merged(engine.config_of(config), torch.bfloat16, k, WIDTHS, prefix=NAME)
    return str(error.value)


def only_hk(why: str, rotation: int = BLOCK, layer: str = NAME) -> str:
    """A pattern of the error that nothing but HK can serve a rotated layer."""
    return (
        rf"{layer}: the checkpoint's weight is rotated \({KEYS}: {rotation}\), and nothing but HK "
        rf"can serve it: .*{why}"
    )
