"""A layer whose weight latent attention (MLA) reads itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
import vllm.model_executor.kernels.linear as lists
from hk_vllm.linear import model
from hk_vllm.linear.created import LATENT
from hk_vllm.linear.kernels import HKKernel
from vllm.platforms import PlatformEnum

from hk_backend.engine.linear.rotated import RotationError
from hk_backend.quantize.recipe import RECIPES
from tests.integration.hk_vllm.linear_layers import config_of, merged, method
from tests.integration.shared.linear_checkpoints import TOKEN, K
from tests.integration.shared.quantization_configs import Config, compressed_tensors, fp8

pytestmark = pytest.mark.usefixtures("linear_route")

NAME = "model.layers.0.self_attn.kv_b_proj"
CHANNELS = compressed_tensors({"strategy": "channel"}, TOKEN, "float-quantized")


def layer_of(config: Any, name: str = NAME) -> Any:
    return merged(config, torch.bfloat16, K, [256], prefix=name)


@pytest.mark.parametrize(
    ("config", "kernels"),
    [
        (fp8("dynamic"), "_POSSIBLE_FP8_KERNELS"),
        (fp8("dynamic", weight_block_size=[128, 128]), "_POSSIBLE_FP8_BLOCK_KERNELS"),
        (CHANNELS, "_POSSIBLE_FP8_KERNELS"),
    ],
    ids=["tensor", "block", "channel"],
)
def test_fp8(config: Config, kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's kernel takes it, where it has one: it keeps the weight and its scales."""
    for kernel in getattr(lists, kernels)[PlatformEnum.CPU]:
        if not issubclass(kernel, HKKernel):
            monkeypatch.setattr(kernel, "is_supported", lambda *_: (True, None))
            monkeypatch.setattr(kernel, "can_implement", lambda *_: (True, None))
    assert model.why_left(layer_of(config_of(config))) == LATENT
    other = layer_of(config_of(config), "model.layers.0.self_attn.o_proj")
    assert model.why_left(other) != LATENT


def test_hk_method() -> None:
    """vLLM multiplies it by the identity, which a rotation by 32 takes to no code of mxfp4."""
    of = method("hk_mxfp4").from_config_dict_json
    layer_of(of(json.dumps({"rotation": 64})))
    with pytest.raises(
        ValueError, match=f"{NAME}: .*{LATENT}, which a rotation by 32 would change"
    ):
        layer_of(of(json.dumps({"rotation": 32})))


def test_a_rotated_checkpoint() -> None:
    layer_of(config_of(RECIPES["mxfp4"].quantization_config("mx", [], 64)))
    with pytest.raises(RotationError, match=f"{NAME}: .*{LATENT}, which a rotation by 128 would"):
        layer_of(config_of(RECIPES["mxfp4"].quantization_config("mx", [], 128)))
