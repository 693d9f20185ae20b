"""Checkpoints that lack tensors, hold ones that are broken, or are not read at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from sglang.srt.model_loader import loader

from hk_backend.engine.linear.route import is_attached
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.hk_sglang.linear_checkpoints import CHECKPOINTS
from tests.integration.hk_sglang.linear_layers import config_of, installed, merged, rank
from tests.integration.hk_sglang.linear_models import (
    ATTENTION,
    GATE_UP,
    MLP,
    QKV,
    Model,
    bfloat16,
    loaded,
    named,
    online,
    without,
)
from tests.integration.shared.linear_checkpoints import WIDTHS, K

ONLINE = ("hk_fp8", "hk_mxfp8", "hk_mxfp6", "hk_mxfp4")


@pytest.fixture(scope="module", autouse=True)
def route() -> Iterator[None]:
    with rank(), installed(), torch.no_grad():
        yield


def refusal(config: Any, tensors: dict[str, torch.Tensor], **options: Any) -> str:
    with pytest.raises(ValueError) as error:
        loaded(config, tensors, **options)
    return str(error.value)


# -- missing


@pytest.mark.parametrize("kind", ["weight", "scale"])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_tensor_of_a_shard(name: str, kind: str) -> None:
    checkpoint = CHECKPOINTS[name]
    gone = f"{ATTENTION}.k_proj.{getattr(checkpoint, kind)}"
    tensors = without(named(checkpoint.tensors()), gone)
    assert refusal(config_of(checkpoint.config), tensors) == f"{gone}: not in the checkpoint"


@pytest.mark.parametrize("gone", [("q_proj",), ("v_proj",), ("k_proj", "v_proj"), QKV])
@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("fp8-dynamic", "weight_scale"),
        ("fp8-static", "input_scale"),
        ("quark-fp8-static", "input_scale"),
        ("modelopt-fp8", "input_scale"),
    ],
)
def test_scales_of_shards(name: str, parameter: str, gone: tuple[str, ...]) -> None:
    checkpoint = CHECKPOINTS[name]
    names = [f"{ATTENTION}.{shard}.{parameter}" for shard in gone]
    tensors = without(named(checkpoint.tensors()), *names)
    assert refusal(config_of(checkpoint.config), tensors) == f"{names[0]}: not in the checkpoint"


@pytest.mark.parametrize("parameter", ["weight_scale", "input_scale"])
def test_the_second_scale_of_two(parameter: str) -> None:
    """One scale for both shards is what a merged tensor has: these came in two."""
    checkpoint = CHECKPOINTS["fp8-static"]
    gone = f"{MLP}.up_proj.{parameter}"
    tensors = without(named(checkpoint.tensors(), MLP, GATE_UP), gone)
    found = refusal(config_of(checkpoint.config), tensors, prefix=f"{MLP}.gate_up_proj")
    assert found == f"{gone}: not in the checkpoint"


def test_a_merged_layer_with_one_scale() -> None:
    """Some checkpoints hold q, k and v as one tensor."""
    checkpoint = CHECKPOINTS["fp8-dynamic"]
    weights, scale = checkpoint.tensors()["weight"], torch.tensor(0.01)
    merged_names = {
        f"{ATTENTION}.qkv_proj.weight": torch.cat(weights),
        f"{ATTENTION}.qkv_proj.weight_scale": scale,
    }
    layer = loaded(config_of(checkpoint.config), merged_names)
    x = torch.randn(4, K, generator=torch.Generator().manual_seed(1)).bfloat16()
    expected = checkpoint.expected(x, {"weight": weights, "weight_scale": [scale] * 3})
    assert largest_error(layer(x)[0], expected) <= tolerance(torch.bfloat16)


@pytest.mark.parametrize("gone", [("q_proj",), ("k_proj", "v_proj"), QKV])
@pytest.mark.parametrize("method", ONLINE)
def test_a_weight_that_is_quantised_while_loading(method: str, gone: tuple[str, ...]) -> None:
    names = [f"{ATTENTION}.{name}.weight" for name in gone]
    found = refusal(online(method), without(bfloat16(), *names))
    assert found == f"{names[0]}: not in the checkpoint"


@pytest.mark.parametrize("method", ONLINE)
def test_a_merged_weight_that_is_quantised_while_loading(method: str) -> None:
    whole = torch.cat(list(bfloat16().values()))
    assert is_attached(loaded(online(method), {f"{ATTENTION}.qkv_proj.weight": whole}))


# -- broken


@pytest.mark.parametrize("bad", [0.0, -1.0, torch.nan, torch.inf], ids=str)
@pytest.mark.parametrize("name", ["fp8-static", "fp8-block", "compressed-tensors-channel-token"])
def test_a_scale_that_is_none(name: str, bad: float) -> None:
    checkpoint = CHECKPOINTS[name]
    tensors = named(checkpoint.tensors())
    broken = f"{ATTENTION}.k_proj.{checkpoint.scale}"
    tensors[broken].view(-1)[-1] = bad
    found = refusal(config_of(checkpoint.config), tensors)
    assert found.startswith(f"{broken}: {bad} at")
    assert "expected positive, finite numbers" in found


@pytest.mark.parametrize("bad", [0.0, torch.nan], ids=str)
def test_an_input_scale_that_is_none(bad: float) -> None:
    checkpoint = CHECKPOINTS["fp8-static"]
    tensors = named(checkpoint.tensors())
    tensors[f"{ATTENTION}.k_proj.input_scale"].fill_(bad)
    assert f"{ATTENTION}.k_proj.input_scale" in refusal(config_of(checkpoint.config), tensors)


@pytest.mark.parametrize("name", ["compressed-tensors-mxfp4", "quark-mxfp6-e2m3", "mxfp8"])
def test_an_mx_scale_that_is_nan(name: str) -> None:
    checkpoint = CHECKPOINTS[name]
    tensors = named(checkpoint.tensors())
    broken = f"{ATTENTION}.v_proj.weight_scale"
    tensors[broken][5, 3] = 0xFF
    found = refusal(config_of(checkpoint.config), tensors)
    assert found.startswith(f"{broken}: code 255 (NaN) at [5, 3]")


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf], ids=str)
@pytest.mark.parametrize("method", ONLINE)
def test_a_weight_that_is_not_finite(method: str, bad: float) -> None:
    """The message is about the weight, which the checkpoint has, not about a scale."""
    tensors, name = bfloat16(), f"{ATTENTION}.k_proj.weight"
    tensors[name][3, 5] = bad
    found = refusal(online(method), tensors)
    assert found == f"{name}: {bad} at [3, 5] is not valid: expected finite numbers"


@pytest.mark.parametrize("name", ["compressed-tensors-channel-token", "fp8-block", "hk_mxfp4"])
@pytest.mark.parametrize("kind", ["weight", "scale"])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_tensor_of_another_shape(name: str, kind: str, axis: int) -> None:
    """SGLang would fill up with zeros where rows are missing."""
    checkpoint = CHECKPOINTS[name]
    tensors = named(checkpoint.tensors())
    broken = f"{ATTENTION}.k_proj.{getattr(checkpoint, kind)}"
    tensors[broken] = tensors[broken].narrow(axis, 0, tensors[broken].shape[axis] - 1)
    found = refusal(config_of(checkpoint.config), tensors)
    assert found.startswith(f"{broken}: {tensors[broken].dtype} {list(tensors[broken].shape)}")
    assert "cannot be loaded" in found


@pytest.mark.parametrize("method", ONLINE)
def test_a_weight_of_another_shape_that_is_quantised_while_loading(method: str) -> None:
    tensors, name = bfloat16(), f"{ATTENTION}.k_proj.weight"
    tensors[name] = tensors[name][:-1]
    found = refusal(online(method), tensors)
    shape = f"{name}: torch.bfloat16 [127, 256] cannot be loaded"
    assert found == f"{shape}: its shape has 127 rows: expected 128"


# -- no checkpoint


def dummy(config: Any) -> Any:
    """A layer as `--load-format dummy` leaves it."""
    layer = merged(config, torch.bfloat16, K, WIDTHS)
    loader.initialize_dummy_weights(Model(layer))
    layer.quant_method.process_weights_after_loading(layer)
    return layer


@pytest.mark.parametrize("name", [*CHECKPOINTS, *ONLINE, None])
def test_dummy_values(name: str | None) -> None:
    if name is None:
        layer = dummy(None)
    else:
        layer = dummy(online(name) if name in ONLINE else config_of(CHECKPOINTS[name].config))
    assert is_attached(layer)
    x = torch.randn(4, K, generator=torch.Generator().manual_seed(1)).bfloat16()
    assert bool(layer(x)[0].isfinite().all())
