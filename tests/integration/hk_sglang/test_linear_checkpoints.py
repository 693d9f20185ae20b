"""Layers of quantised checkpoints in SGLang's own ways."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hk_backend import reference
from tests.integration.hk_sglang import linear_layers
from tests.integration.hk_sglang.linear_checkpoints import CHECKPOINTS
from tests.integration.hk_sglang.linear_layers import config_of, loaded
from tests.integration.shared.checkpoints import K, x_of
from tests.integration.shared.linear.devices import in_schemes
from tests.integration.shared.linear.layers import check_shards, layer_of
from tests.integration.shared.linear.named_tensors import ATTENTION, named

ROUNDED = {
    "fp8-static": "tensor",
    "fp8-dynamic": "token",
    "fp8-block": "token_block",
    "ct-channel-token": "token",
    "quark-channel-token": "token",
    "w8a8_fp8": "token",
    "quark-block": "token_block",
}
"""Checkpoints, and what shares a scale of the codes that SGLang's fused kernels make for them."""


pytestmark = pytest.mark.usefixtures("linear_route")


@pytest.mark.parametrize("rest", [(), (torch.float16,), (torch.zeros(9, K),)], ids=len)
@in_schemes(CHECKPOINTS, ROUNDED)
def test_codes_that_a_model_has_made(device: str, name: str, rest: tuple[Any, ...]) -> None:
    """By a fused kernel, as a tuple: with scales, and the rows' dtype or the rows themselves."""
    scheme = CHECKPOINTS[name]
    layer = layer_of(linear_layers, scheme)
    codes, scales = reference.quantize_fp8(x_of(), ROUNDED[name])
    out, _ = layer((codes, 3 * scales, *rest))
    assert out.dtype == (torch.float16 if rest == (torch.float16,) else torch.bfloat16)
    check_shards(scheme.of_codes(codes, 3 * scales, out.dtype), out)


@pytest.mark.parametrize("name", ["fp8-block", "mxfp8"])
def test_the_other_name_of_a_scale(name: str) -> None:
    """Some of SGLang's models and loaders rename weight_scale_inv to weight_scale, or back."""
    scheme = CHECKPOINTS[name]
    shards = scheme.tensors()
    names = {"weight_scale": "weight_scale_inv", "weight_scale_inv": "weight_scale"}
    renamed = {names.get(each, each): value for each, value in shards.items()}
    layer = layer_of(linear_layers, scheme, renamed)
    check_shards(scheme.layers(x_of(), shards), layer(x_of())[0])


@pytest.mark.parametrize("name", ["ct-channel-token", "fp8-block", "hk-mxfp4"])
@pytest.mark.parametrize("kind", ["weight", "scale"])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_tensor_of_another_shape(name: str, kind: str, axis: int) -> None:
    """SGLang would fill up with zeros where rows are missing."""
    scheme = CHECKPOINTS[name]
    tensors = named(scheme.tensors())
    broken = f"{ATTENTION}.k_proj.{getattr(scheme, kind)}"
    tensors[broken] = tensors[broken].narrow(axis, 0, tensors[broken].shape[axis] - 1)
    with pytest.raises(ValueError, match="cannot be loaded") as error:
        loaded(config_of(scheme.config), tensors)
    shape = f"{broken}: {tensors[broken].dtype} {list(tensors[broken].shape)}"
    assert str(error.value).startswith(shape)
