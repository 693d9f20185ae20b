"""Rotations of other tools that vLLM alone reads, and transforms that vLLM does around HK."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch

from hk_backend.engine.linear.rotated import AUTO_ROUND_KEY, TRANSFORMS_KEY, RotationError
from hk_backend.engine.linear.route import is_attached
from tests.integration.adapter import LINEAR
from tests.integration.shared.checkpoints import LAYERS, WIDTHS, K, compressed, x_of
from tests.integration.shared.linear.layers import check_shards, layer_of
from tests.integration.shared.linear.named_tensors import bfloat16
from tests.integration.shared.linear.rotated import NAME

pytestmark = pytest.mark.usefixtures("linear_route")

AUTO_ROUND = LAYERS["ar-mxfp4-rotated"].config
FOLDED = {"r1": True, "r2": True, "r3": False, "r4": False, "online_r1_rotation": False}


def made(config: dict[str, Any]) -> Any:
    return LINEAR.merged(LINEAR.config_of(config), torch.bfloat16, K, WIDTHS, prefix=NAME)


@pytest.mark.parametrize(
    ("written", "rotation"),
    [
        ({"hadamard_config": {"block_size": 64, "hadamard_type": "hadamard"}}, 64),
        ({"spinquant_config": FOLDED}, 0),
        ({}, 0),
    ],
)
def test_other_keys_of_auto_round(written: dict[str, Any], rotation: int) -> None:
    """Old versions have another key, and rotations that are in the weights need nothing."""
    plain = {name: value for name, value in AUTO_ROUND.items() if name != AUTO_ROUND_KEY}
    assert made(plain | written).quant_method.scheme.kernel.rotation == rotation


def test_a_layer_of_auto_round_in_16_bits() -> None:
    """auto-round rotates no weight that it does not quantise."""
    layer = made(AUTO_ROUND | {"extra_config": {NAME: {"bits": 16}}})
    LINEAR.load(layer, {"weight": list(bfloat16().values())})
    assert layer.hk_packed.rotation == 0


@pytest.mark.parametrize("name", ["ar-mxfp4-rotated", "ar-mxfp8-rotated"])
def test_new_weights_of_auto_round(name: str) -> None:
    scheme = LAYERS[name]
    layer, other = layer_of(LINEAR, scheme), scheme.tensors()
    other[scheme.weight] = [each.flip(0) for each in other[scheme.weight]]
    LINEAR.reload(layer, other)
    check_shards(scheme.layers(x_of(), other), LINEAR.forward(layer, x_of()))


def test_experts_of_auto_round() -> None:
    name = "model.layers.0.mlp.experts"
    with pytest.raises(
        RotationError, match=rf"{name}: .*{AUTO_ROUND_KEY}: 32\).*: experts of a mix"
    ):
        LINEAR.config_of(AUTO_ROUND).get_quant_method(LINEAR.experts(), name)


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let vLLM multiply by a transform's matrix as on ROCm; its CPU platform has no function.

    vLLM keeps the addresses of the matrices that it has scaled, and scales none twice. Another
    test's freed matrix may have had this one's address.
    """
    from hk_vllm.linear import rotated
    from vllm.model_executor.layers.quantization.compressed_tensors.transform import module

    monkeypatch.setattr(rotated.current_platform, "is_cpu", lambda: False)
    product = lambda _, x, weight, bias: torch.nn.functional.linear(x, weight, bias)  # noqa: E731
    monkeypatch.setattr(module, "dispatch_unquantized_gemm", lambda: product)
    monkeypatch.setattr(module.HadamardTransform, "scaled_data_ptrs", set())


@pytest.mark.parametrize("name", ["ct-channel-token", "ct-mxfp4"])
def test_a_transform_that_vllm_does(on_a_gpu: None, name: str) -> None:
    """vLLM transforms the input, and HK multiplies the result as any other input.

    Nothing may hand over codes instead of an input in 16 bits.
    """
    from vllm.model_executor.layers.fusion.quant_activation import get_input_quant_key

    scheme, transforms = LAYERS[name], compressed.transforms(type="random-hadamard")
    layer = made(scheme.config | {TRANSFORMS_KEY: transforms})
    matrix = compressed.matrices(transforms)["v_input.weight"]
    LINEAR.load(layer, scheme.tensors() | {"v_input.weight": [matrix] * len(WIDTHS)})
    assert is_attached(layer)
    layer._input_quant_key = "as kernels on a GPU announce"
    assert get_input_quant_key(layer) is None
    out, block = LINEAR.forward(layer, x_of()), len(matrix)
    held = (matrix / block**0.5).bfloat16()
    x = (x_of().unflatten(-1, (-1, block)) @ held).flatten(-2)
    check_shards(scheme.layers(x, scheme.tensors()), out)
    with pytest.raises(AssertionError):
        check_shards(scheme.layers(x_of(), scheme.tensors()), out)  # a lost one would be seen


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"type": "hadamard", "head_dim": 16}, "no kernel for type 'hadamard' on this device"),
        ({"type": "random-matrix"}, "vLLM treats type 'random-matrix' as 'random-hadamard'"),
        ({"type": "random-hadamard", "randomize": True}, "vLLM ignores 'randomize'"),
    ],
)
def test_what_vllm_does_not_do(on_a_gpu: None, changed: dict[str, Any], why: str) -> None:
    transforms = compressed.transforms(**changed)
    with pytest.raises(RotationError, match=f"{NAME}: {TRANSFORMS_KEY} 'v': .*; .*{why}"):
        made(deepcopy(LAYERS["ct-mxfp4"].config) | {TRANSFORMS_KEY: transforms})


def test_transforms_on_ranks(on_a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from hk_vllm.linear import rotated

    monkeypatch.setattr(rotated, "get_tensor_model_parallel_world_size", lambda: 2)
    transforms = compressed.transforms(type="random-hadamard")
    with pytest.raises(RotationError, match="vLLM does none with tensor parallelism"):
        made(LAYERS["ct-mxfp4"].config | {TRANSFORMS_KEY: transforms})
