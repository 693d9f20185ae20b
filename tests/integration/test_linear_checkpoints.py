"""Layers of quantised checkpoints, one per scheme that vLLM knows: HK computes what the
checkpoint's own numbers say, shard by shard, and names a tensor that it cannot read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from hk_backend import reference
from hk_backend.reference import quantize_mx
from hk_backend.routed_linear import is_attached
from hk_backend.shadow_check import largest_error, tolerance
from tests.integration.linear_layers import installed, load, merged, one_rank

K, WIDTHS = 256, [256, 128, 128]
SCALES = [0.011, 0.037, 0.0031]
"""Of the three shards, far apart: one scale for all would lose most of the third's values."""


@pytest.fixture(scope="module", autouse=True)
def route(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with one_rank(tmp_path_factory.mktemp("rank")), installed(), torch.no_grad():
        yield


Shards = dict[str, list[torch.Tensor]]


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds of one merged layer, and what that means."""

    config: Callable[[], Any]
    tensors: Callable[[], Shards]
    format: str
    activations: str
    weight: str = "weight"
    scale: str = "weight_scale"

    def expected(self, x: torch.Tensor, shards: Shards) -> torch.Tensor:
        """The reference's output, each shard by its own scale."""
        static = shards.get("input_scale")
        largest = None if static is None else torch.stack(static).max().reshape(1)
        parts = []
        for weight, scale in zip(shards[self.weight], shards[self.scale], strict=True):
            parts.append(
                reference.linear(
                    x,
                    weight,
                    self.format,
                    scale,
                    activations=self.activations,
                    input_scale=largest if self.activations == "tensor" else None,
                )
            )
        return torch.cat(parts, -1)


# -- tensors


def codes(scale: float, width: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + width + int(scale * 1e6))
    values = torch.randn(width, K, generator=generator) * 0.4 / scale
    return values.clamp(-448, 448).to(torch.float8_e4m3fn)


def per_tensor(shape: tuple[int, ...] = ()) -> Shards:
    pairs = list(zip(SCALES, WIDTHS, strict=True))
    return {
        "weight": [codes(scale, width) for scale, width in pairs],
        "weight_scale": [torch.full(shape, scale) for scale in SCALES],
    }


def static(shape: tuple[int, ...] = ()) -> Shards:
    inputs = [torch.full(shape, scale) for scale in (0.01, 0.025, 0.02)]
    return {**per_tensor(shape), "input_scale": inputs}


def per_channel(columns: bool = True) -> Shards:
    scales = [
        torch.linspace(0.5, 2.0, width) * scale for scale, width in zip(SCALES, WIDTHS, strict=True)
    ]
    return {
        "weight": per_tensor()["weight"],
        "weight_scale": [scale[:, None] if columns else scale for scale in scales],
    }


def blocks(name: str = "weight_scale") -> Shards:
    scales = [
        torch.linspace(0.5, 2.0, width // 128 * 2).reshape(-1, 2) * scale
        for scale, width in zip(SCALES, WIDTHS, strict=True)
    ]
    return {"weight": per_tensor()["weight"], name: scales}


def mx(format: str, name: str = "weight") -> Shards:
    made = [
        quantize_mx(codes(scale, width).float() * scale, format)
        for scale, width in zip(SCALES, WIDTHS, strict=True)
    ]
    return {name: [code for code, _ in made], "weight_scale": [scale for _, scale in made]}


# -- configurations


def fp8(activation_scheme: str, **extra: Any) -> Callable[[], Any]:
    def make() -> Any:
        from vllm.model_executor.layers.quantization.fp8 import Fp8Config

        config = {"quant_method": "fp8", "activation_scheme": activation_scheme, **extra}
        return Fp8Config.from_config(config)

    return make


def compressed_tensors(
    weights: dict[str, Any], inputs: dict[str, Any] | None, format: str
) -> Callable[[], Any]:
    def make() -> Any:
        from vllm.model_executor.layers.quantization.compressed_tensors import compressed_tensors

        eight = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False}
        group: dict[str, Any] = {"targets": ["Linear"], "weights": {**eight, **weights}}
        group["input_activations"] = None if inputs is None else {**eight, **inputs}
        config = {"quant_method": "compressed-tensors", "format": format, "ignore": ["lm_head"]}
        return compressed_tensors.CompressedTensorsConfig.from_config(
            {**config, "config_groups": {"group_0": group}}
        )

    return make


def quark(weights: dict[str, Any], inputs: dict[str, Any] | None) -> Callable[[], Any]:
    def make() -> Any:
        from vllm.model_executor.layers.quantization.quark.quark import QuarkConfig

        everywhere = {"weight": weights, "input_tensors": inputs}
        everywhere |= {"output_tensors": None, "bias": None}
        return QuarkConfig.from_config(
            {
                "quant_method": "quark",
                "export": {"kv_cache_group": [], "pack_method": "reorder"},
                "global_quant_config": everywhere,
                "layer_quant_config": {},
                "layer_type_quant_config": {},
                "exclude": [],
            }
        )

    return make


def quark_fp8(qscheme: str, dynamic: bool) -> dict[str, Any]:
    return {
        "dtype": "fp8_e4m3",
        "qscheme": qscheme,
        "is_dynamic": dynamic,
        "symmetric": True,
        "ch_axis": None if qscheme == "per_tensor" else 0,
    }


def quark_mx(dtype: str, dynamic: bool) -> dict[str, Any]:
    return {
        "dtype": dtype,
        "qscheme": "per_group",
        "group_size": 32,
        "is_dynamic": dynamic,
        "scale_format": "e8m0",
        "symmetric": None,
        "ch_axis": -1,
    }


def modelopt(algorithm: str) -> Callable[[], Any]:
    def make() -> Any:
        from vllm.model_executor.layers.quantization import modelopt

        owner = modelopt.ModelOptMxFp8Config if algorithm == "MXFP8" else modelopt.ModelOptFp8Config
        return owner.from_config({"quant_method": "modelopt", "quant_algo": algorithm})

    return make


def hk(name: str, **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        from vllm.model_executor.layers.quantization import get_quantization_config

        return get_quantization_config(name).from_config({"quant_method": name, **options})

    return make


TOKEN = {"strategy": "token", "dynamic": True}
MX_GROUP = {"strategy": "group", "group_size": 32}
MXFP4 = {**MX_GROUP, "num_bits": 4, "scale_dtype": "torch.uint8", "zp_dtype": None}
MXFP8 = {**MX_GROUP, "scale_dtype": "torch.uint8", "zp_dtype": None}
DYNAMIC = {"dynamic": True}
E4M3 = "fp8_e4m3fn"
CHECKPOINTS = {
    "fp8-static": Checkpoint(fp8("static"), static, E4M3, "tensor"),
    "fp8-dynamic": Checkpoint(fp8("dynamic"), per_tensor, E4M3, "tensor"),
    "fp8-block": Checkpoint(
        fp8("dynamic", weight_block_size=[128, 128]),
        lambda: blocks("weight_scale_inv"),
        E4M3,
        "token_block",
        scale="weight_scale_inv",
    ),
    "compressed-tensors-tensor-static": Checkpoint(
        compressed_tensors({"strategy": "tensor"}, {"strategy": "tensor"}, "float-quantized"),
        lambda: {
            **per_tensor((1,)),
            "input_scale": [s.reshape(1) for s in static()["input_scale"]],
        },
        E4M3,
        "tensor",
    ),
    "compressed-tensors-channel-token": Checkpoint(
        compressed_tensors({"strategy": "channel"}, TOKEN, "float-quantized"),
        per_channel,
        E4M3,
        "token",
    ),
    "compressed-tensors-block": Checkpoint(
        compressed_tensors(
            {"strategy": "block", "block_structure": [128, 128]},
            {"strategy": "group", "group_size": 128, "dynamic": True},
            "float-quantized",
        ),
        blocks,
        E4M3,
        "token_block",
    ),
    "compressed-tensors-weight-only-channel": Checkpoint(
        compressed_tensors({"strategy": "channel"}, None, "float-quantized"),
        per_channel,
        E4M3,
        "none",
    ),
    "compressed-tensors-weight-only-tensor": Checkpoint(
        compressed_tensors({"strategy": "tensor"}, None, "float-quantized"),
        lambda: per_tensor((1,)),
        E4M3,
        "none",
    ),
    "compressed-tensors-weight-only-block": Checkpoint(
        compressed_tensors(
            {"strategy": "block", "block_structure": [128, 128]}, None, "float-quantized"
        ),
        blocks,
        E4M3,
        "none",
    ),
    "compressed-tensors-mxfp4": Checkpoint(
        compressed_tensors(MXFP4, {**MXFP4, **DYNAMIC}, "mxfp4-pack-quantized"),
        lambda: mx("mxfp4", "weight_packed"),
        "mxfp4",
        "mx",
        weight="weight_packed",
    ),
    "compressed-tensors-mxfp4-weight-only": Checkpoint(
        compressed_tensors(MXFP4, None, "mxfp4-pack-quantized"),
        lambda: mx("mxfp4", "weight_packed"),
        "mxfp4",
        "none",
        weight="weight_packed",
    ),
    "compressed-tensors-mxfp8": Checkpoint(
        compressed_tensors(MXFP8, {**MXFP8, **DYNAMIC}, "mxfp8-quantized"),
        lambda: mx("mxfp8"),
        "mxfp8",
        "mx",
    ),
    "compressed-tensors-mxfp8-weight-only": Checkpoint(
        compressed_tensors(MXFP8, None, "mxfp8-quantized"), lambda: mx("mxfp8"), "mxfp8", "none"
    ),
    "quark-fp8-static": Checkpoint(
        quark(quark_fp8("per_tensor", False), quark_fp8("per_tensor", False)),
        static,
        E4M3,
        "tensor",
    ),
    "quark-fp8-channel-token": Checkpoint(
        quark(quark_fp8("per_channel", False), {**quark_fp8("per_channel", True), "ch_axis": 1}),
        lambda: per_channel(columns=False),
        E4M3,
        "token",
    ),
    "quark-mxfp4": Checkpoint(
        quark(quark_mx("fp4", False), quark_mx("fp4", True)), lambda: mx("mxfp4"), "mxfp4", "mx"
    ),
    "quark-mxfp4-weight-only": Checkpoint(
        quark(quark_mx("fp4", False), None), lambda: mx("mxfp4"), "mxfp4", "none"
    ),
    **{
        f"quark-mxfp6-{kind}": Checkpoint(
            quark(quark_mx(f"fp6_{kind}", False), quark_mx(f"fp6_{kind}", True)),
            lambda kind=kind: mx(f"mxfp6_{kind}"),  # type: ignore[misc]
            f"mxfp6_{kind}",
            "mx",
        )
        for kind in ("e2m3", "e3m2")
    },
    "modelopt-fp8": Checkpoint(modelopt("FP8"), static, E4M3, "tensor"),
    "modelopt-channel-token": Checkpoint(
        modelopt("FP8_PER_CHANNEL_PER_TOKEN"), lambda: per_channel(columns=False), E4M3, "token"
    ),
    "modelopt-mxfp8": Checkpoint(modelopt("MXFP8"), lambda: mx("mxfp8"), "mxfp8", "mx"),
    "hk_fp8": Checkpoint(hk("hk_fp8"), per_channel, E4M3, "token"),
    "hk_fp8-weight-only": Checkpoint(hk("hk_fp8", activations="none"), per_channel, E4M3, "none"),
    "hk_mxfp8": Checkpoint(hk("hk_mxfp8"), lambda: mx("mxfp8"), "mxfp8", "mx"),
    "hk_mxfp6": Checkpoint(
        hk("hk_mxfp6", format="mxfp6_e3m2"), lambda: mx("mxfp6_e3m2"), "mxfp6_e3m2", "mx"
    ),
    "hk_mxfp4": Checkpoint(
        hk("hk_mxfp4", activations="none"), lambda: mx("mxfp4"), "mxfp4", "none"
    ),
}


def layer_of(checkpoint: Checkpoint, shards: Shards) -> Any:
    return load(merged(checkpoint.config(), torch.bfloat16, K, WIDTHS), shards)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_every_shard_by_its_own_scale(name: str) -> None:
    checkpoint = CHECKPOINTS[name]
    shards = checkpoint.tensors()
    layer = layer_of(checkpoint, shards)
    assert is_attached(layer)
    assert layer.weight.numel() == 0, "the checkpoint's own weight is still there"
    x = torch.randn(9, K, generator=torch.Generator().manual_seed(1)).bfloat16()
    out = layer(x)
    expected = checkpoint.expected(x, shards)
    assert out.dtype == torch.bfloat16
    # shard by shard: the first's values would hide the third's, which are much smaller
    for part, truth in zip(out.split(WIDTHS, -1), expected.split(WIDTHS, -1), strict=True):
        assert largest_error(part, truth) <= tolerance(torch.bfloat16)


def test_one_scale_for_all_shards_would_be_seen() -> None:
    """The tolerance above tells per-shard scales from vLLM's requantised ones."""
    checkpoint = CHECKPOINTS["fp8-dynamic"]
    shards = checkpoint.tensors()
    largest = torch.tensor(max(SCALES))
    requantised = [
        (weight.float() * scale / largest).to(torch.float8_e4m3fn)
        for weight, scale in zip(shards["weight"], shards["weight_scale"], strict=True)
    ]
    x = torch.randn(9, K, generator=torch.Generator().manual_seed(1)).bfloat16()
    theirs = checkpoint.expected(x, {"weight": requantised, "weight_scale": [largest] * 3})
    expected = checkpoint.expected(x, shards)
    assert largest_error(theirs[:, -128:], expected[:, -128:]) > tolerance(torch.bfloat16)


# -- corrupt checkpoints


def refusal(name: str, shards: Shards) -> str:
    with pytest.raises(ValueError) as error:
        layer_of(CHECKPOINTS[name], shards)
    return str(error.value)


SHARDED = [name for name in CHECKPOINTS if not name.startswith("modelopt-mx")]


@pytest.mark.parametrize("name", SHARDED)
def test_a_scale_that_is_missing(name: str) -> None:
    """The scale of the second shard is not in the checkpoint."""
    checkpoint = CHECKPOINTS[name]
    shards = checkpoint.tensors()
    layer = merged(checkpoint.config(), torch.bfloat16, K, WIDTHS)
    for parameter, values in shards.items():
        for index, value in enumerate(values):
            if (parameter, index) != (checkpoint.scale, 1):
                tensor = getattr(layer, parameter)
                tensor.weight_loader(tensor, value, index)
    with pytest.raises(ValueError) as error:
        layer.quant_method.process_weights_after_loading(layer)
    assert str(error.value).startswith(f"model.k_proj.{checkpoint.scale}: not in the checkpoint")


@pytest.mark.parametrize("bad", [0.0, -1.0, torch.nan, torch.inf], ids=str)
@pytest.mark.parametrize("name", ["fp8-static", "fp8-block", "compressed-tensors-channel-token"])
def test_a_scale_that_is_none(name: str, bad: float) -> None:
    checkpoint = CHECKPOINTS[name]
    shards = checkpoint.tensors()
    shards[checkpoint.scale][1].view(-1)[-1] = bad
    found = refusal(name, shards)
    assert found.startswith(f"model.k_proj.{checkpoint.scale}: {bad} at")
    assert "expected positive, finite numbers" in found


@pytest.mark.parametrize("bad", [0.0, torch.nan], ids=str)
def test_an_input_scale_that_is_none(bad: float) -> None:
    shards = CHECKPOINTS["fp8-static"].tensors()
    shards["input_scale"][1].fill_(bad)
    assert "model.k_proj.input_scale" in refusal("fp8-static", shards)


@pytest.mark.parametrize("name", ["compressed-tensors-mxfp4", "quark-mxfp6-e2m3", "hk_mxfp8"])
def test_an_mx_scale_that_is_nan(name: str) -> None:
    shards = CHECKPOINTS[name].tensors()
    shards["weight_scale"][2][5, 3] = 0xFF
    found = refusal(name, shards)
    assert found.startswith("model.v_proj.weight_scale: code 255 (NaN) at [5, 3]")


def test_a_merged_layer_with_one_scale() -> None:
    """Some checkpoints hold q, k and v as one tensor: vLLM loads its scale as the first shard's."""
    from vllm.model_executor.layers.linear import MergedColumnParallelLinear  # noqa: F401

    checkpoint = CHECKPOINTS["fp8-dynamic"]
    shards = {"weight": [codes(0.01, width) for width in WIDTHS]}
    layer = merged(checkpoint.config(), torch.bfloat16, K, WIDTHS)
    layer.weight_scale.weight_loader(layer.weight_scale, torch.tensor(0.01), 0)
    load(layer, shards)
    x = torch.randn(4, K).bfloat16()
    expected = checkpoint.expected(x, shards | {"weight_scale": [torch.tensor(0.01)] * 3})
    assert largest_error(layer(x), expected) <= tolerance(torch.bfloat16)
