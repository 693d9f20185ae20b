"""Checkpoints that lack tensors, hold ones that are broken, or are not read at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from hk_backend.engine.linear.options import FORMATS_OF
from tests.integration.hk_sglang import linear_layers
from tests.integration.hk_sglang.linear_checkpoints import CHECKPOINTS
from tests.integration.hk_sglang.linear_layers import (
    config_of,
    dummy,
    installed,
    online,
    rank,
)
from tests.integration.shared.linear.devices import in_schemes, on_devices
from tests.integration.shared.linear.missing_tensors import *  # noqa: F403
from tests.integration.shared.linear.missing_tensors import assert_finite, refusal
from tests.integration.shared.linear.named_tensors import ATTENTION, bfloat16, named, without
from tests.integration.shared.linear_checkpoints import Checkpoint


@pytest.fixture(scope="module", autouse=True)
def route() -> Iterator[None]:
    with rank(), installed(), torch.no_grad():
        yield


def test_a_scale_of_a_shard(any_checkpoint: Checkpoint) -> None:
    gone = f"{ATTENTION}.k_proj.{any_checkpoint.scale}"
    tensors = without(named(any_checkpoint.tensors()), gone)
    found = refusal(linear_layers, config_of(any_checkpoint.config), tensors)
    assert found == f"{gone}: not in the checkpoint"


# -- broken


@pytest.mark.parametrize("bad", [0.0, -1.0, torch.nan, torch.inf], ids=str)
@in_schemes(CHECKPOINTS, ["fp8-static", "fp8-block", "compressed-tensors-channel-token"])
def test_a_scale_that_is_none(device: str, name: str, bad: float) -> None:
    checkpoint = CHECKPOINTS[name]
    tensors = named(checkpoint.tensors())
    broken = f"{ATTENTION}.k_proj.{checkpoint.scale}"
    tensors[broken].view(-1)[-1] = bad
    found = refusal(linear_layers, config_of(checkpoint.config), tensors)
    assert found.startswith(f"{broken}: {bad} at")
    assert "expected positive, finite numbers" in found


@on_devices
@pytest.mark.parametrize("bad", [0.0, torch.nan], ids=str)
def test_an_input_scale_that_is_none(device: str, bad: float) -> None:
    checkpoint = CHECKPOINTS["fp8-static"]
    tensors = named(checkpoint.tensors())
    tensors[f"{ATTENTION}.k_proj.input_scale"].fill_(bad)
    assert f"{ATTENTION}.k_proj.input_scale" in refusal(
        linear_layers, config_of(checkpoint.config), tensors
    )


@pytest.mark.parametrize("name", ["compressed-tensors-mxfp4", "quark-mxfp6-e2m3", "mxfp8"])
def test_an_mx_scale_that_is_nan(name: str) -> None:
    checkpoint = CHECKPOINTS[name]
    tensors = named(checkpoint.tensors())
    broken = f"{ATTENTION}.v_proj.weight_scale"
    tensors[broken][5, 3] = 0xFF
    found = refusal(linear_layers, config_of(checkpoint.config), tensors)
    assert found.startswith(f"{broken}: code 255 (NaN) at [5, 3]")


@pytest.mark.parametrize("name", ["compressed-tensors-channel-token", "fp8-block", "hk_mxfp4"])
@pytest.mark.parametrize("kind", ["weight", "scale"])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_tensor_of_another_shape(name: str, kind: str, axis: int) -> None:
    """SGLang would fill up with zeros where rows are missing."""
    checkpoint = CHECKPOINTS[name]
    tensors = named(checkpoint.tensors())
    broken = f"{ATTENTION}.k_proj.{getattr(checkpoint, kind)}"
    tensors[broken] = tensors[broken].narrow(axis, 0, tensors[broken].shape[axis] - 1)
    found = refusal(linear_layers, config_of(checkpoint.config), tensors)
    assert found.startswith(f"{broken}: {tensors[broken].dtype} {list(tensors[broken].shape)}")
    assert "cannot be loaded" in found


@pytest.mark.parametrize("method", FORMATS_OF)
def test_a_weight_of_another_shape_that_is_quantised_while_loading(method: str) -> None:
    tensors, name = bfloat16(), f"{ATTENTION}.k_proj.weight"
    tensors[name] = tensors[name][:-1]
    found = refusal(linear_layers, online(method), tensors)
    shape = f"{name}: torch.bfloat16 [127, 256] cannot be loaded"
    assert found == f"{shape}: its shape has 127 rows: expected 128"


# -- no checkpoint


def test_dummy_values_that_are_not_quantised() -> None:
    assert_finite(linear_layers, dummy(None))
