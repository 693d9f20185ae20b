"""Layers of quantised checkpoints in SGLang's own ways."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sglang.srt.layers.linear import ReplicatedLinear, RowParallelLinear

from hk_backend import reference
from hk_backend.engine.linear.options import FORMATS_OF
from hk_backend.engine.linear.route import is_attached
from tests.integration.hk_sglang import linear_layers
from tests.integration.hk_sglang.linear_checkpoints import CHECKPOINTS
from tests.integration.hk_sglang.linear_layers import config_of, loaded, made, merged, online, put
from tests.integration.shared.checkpoints import WIDTHS, K, x_of
from tests.integration.shared.linear.devices import in_schemes, on_gfx950
from tests.integration.shared.linear.layers import check_shards, layer_of
from tests.integration.shared.linear.named_tensors import ATTENTION, bfloat16, named
from tests.ops.linear_oracle import check_result

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


@on_gfx950
def test_codes_for_a_layer_that_is_quantised_while_loading(device: str) -> None:
    layer = loaded(online("hk_fp8"), bfloat16())
    codes, scales = reference.quantize_fp8(x_of())
    assert torch.equal(layer((codes, scales))[0], layer(x_of())[0])


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


@pytest.mark.parametrize("method", FORMATS_OF)
def test_a_weight_of_another_shape_that_is_quantised_while_loading(method: str) -> None:
    tensors, name = bfloat16(), f"{ATTENTION}.k_proj.weight"
    tensors[name] = tensors[name][:-1]
    with pytest.raises(ValueError) as error:
        loaded(online(method), tensors)
    shape = f"{name}: torch.bfloat16 [127, 256] cannot be loaded"
    assert str(error.value) == f"{shape}: its shape has 127 rows: expected 128"


@pytest.mark.parametrize("kind", [ReplicatedLinear, RowParallelLinear], ids=lambda k: k.__name__)
@in_schemes(CHECKPOINTS)
def test_a_layer_that_is_not_merged(device: str, name: str, kind: Any) -> None:
    scheme, (n, *_) = CHECKPOINTS[name], WIDTHS
    shards = {parameter: values[:1] for parameter, values in scheme.tensors().items()}
    config = config_of(scheme.config)
    layer = made(kind, torch.bfloat16, K, n, bias=False, quant_config=config, prefix="model.o_proj")
    for parameter, (value,) in shards.items():
        layer.get_parameter(parameter).weight_loader(layer.get_parameter(parameter), value)
    layer.quant_method.process_weights_after_loading(layer)
    [shard] = scheme.layers(x_of(), shards)
    check_result(shard, layer.quant_method.apply(layer, x_of()))


@pytest.mark.parametrize("method", FORMATS_OF)
def test_a_layer_is_quantised_before_the_next_is_loaded(method: str) -> None:
    """As soon as its last tensor is there, its weight is released."""
    weights = list(bfloat16().values())
    layer = merged(online(method), torch.bfloat16, K, WIDTHS)
    assert layer.weight.numel() == 0, "the model is in memory before it is loaded"
    put(layer, {"weight": weights[:2]})
    assert not is_attached(layer)
    put(layer, {"weight": weights[2:]}, first=2)
    assert is_attached(layer)
    assert layer.weight.numel() == 0
    layer.quant_method.process_weights_after_loading(layer)
    out, same = layer(x_of())[0], loaded(online(method), bfloat16())
    assert torch.equal(out, same(x_of())[0])
