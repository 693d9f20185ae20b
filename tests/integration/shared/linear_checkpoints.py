"""What checkpoints hold of a merged layer, one for each scheme, and what that means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from hk_backend.ops.rotation import ROTATION_KEY
from hk_backend.reference import quantize_mx
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.shared.quantization_configs import (
    Config,
    compressed_tensors,
    fp8,
    hk,
    modelopt,
    quark,
    quark_fp8,
    quark_mx,
)
from tests.ops.linear_cases import Layer

K, WIDTHS = 256, [256, 128, 128]
SCALES = [0.011, 0.037, 0.0031]
"""Of the three shards, far apart: one scale for all would lose most of the third's values."""

Shards = dict[str, list[torch.Tensor]]


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds of one merged layer, and what that means."""

    config: Config
    tensors: Callable[[], Shards]
    format: str
    activations: str
    weight: str = "weight"
    scale: str = "weight_scale"
    rotation: int = 0

    @property
    def scale_kind(self) -> str:
        """What shares a weight scale, as `LinearRequest` calls it."""
        if self.format.startswith("mx"):
            return "mx"
        if self.format == "bf16":
            return ""
        shards = self.tensors()
        weight, scale = shards[self.weight][0], shards[self.scale][0]
        if scale.numel() == 1:
            return "tensor"
        return "channel" if len(scale) == len(weight) else "block"

    def layers(self, x: torch.Tensor, shards: Shards) -> list[Layer]:
        """What each shard is to compute: of `x`, by its own scale."""
        static = shards.get("input_scale")
        scales = shards.get(self.scale, [None] * len(shards[self.weight]))
        largest = None if static is None else torch.stack(static).max().reshape(1)
        return [
            Layer(
                x,
                weight,
                self.format,
                scale,
                self.activations,
                largest if self.activations == "tensor" else None,
                rotation=self.rotation,
            )
            for weight, scale in zip(shards[self.weight], scales, strict=True)
        ]

    def expected(self, x: torch.Tensor, shards: Shards) -> torch.Tensor:
        """The reference's output, each shard by its own scale."""
        return torch.cat([layer.exact() for layer in self.layers(x, shards)], -1)


def x_of(k: int = K) -> torch.Tensor:
    return torch.randn(9, k, generator=torch.Generator().manual_seed(1)).bfloat16()


def assert_shards(out: torch.Tensor, expected: torch.Tensor, widths: list[int]) -> None:
    """Shard by shard: the first's values would hide the third's, which are much smaller."""
    assert out.dtype == torch.bfloat16
    for part, truth in zip(out.split(widths, -1), expected.split(widths, -1), strict=True):
        assert largest_error(part, truth) <= tolerance(torch.bfloat16)


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
    made = [_mx(format, scale, width) for scale, width in zip(SCALES, WIDTHS, strict=True)]
    return {
        name: [code.clone() for code, _ in made],
        "weight_scale": [scale.clone() for _, scale in made],
    }


@cache
def _mx(format: str, scale: float, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The reference takes a second for all of them."""
    return quantize_mx(codes(scale, width).float() * scale, format)


# -- schemes

TOKEN = {"strategy": "token", "dynamic": True}
MX_GROUP = {"strategy": "group", "group_size": 32}
MXFP4 = {**MX_GROUP, "num_bits": 4, "scale_dtype": "torch.uint8", "zp_dtype": None}
MXFP8 = {**MX_GROUP, "scale_dtype": "torch.uint8", "zp_dtype": None}
DYNAMIC = {"dynamic": True}


def rotated(block: int) -> Config:
    """Of weights that are rotated already."""
    return {ROTATION_KEY: block}


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
    "compressed-tensors-mxfp4-rotated": Checkpoint(
        compressed_tensors({**MXFP4, **rotated(64)}, {**MXFP4, **DYNAMIC}, "mxfp4-pack-quantized"),
        lambda: mx("mxfp4", "weight_packed"),
        "mxfp4",
        "mx_rotated",
        weight="weight_packed",
        rotation=64,
    ),
    "compressed-tensors-mxfp4-rotated-weight-only": Checkpoint(
        compressed_tensors({**MXFP4, **rotated(128)}, None, "mxfp4-pack-quantized"),
        lambda: mx("mxfp4", "weight_packed"),
        "mxfp4",
        "rotated",
        weight="weight_packed",
        rotation=128,
    ),
    "compressed-tensors-mxfp8-rotated": Checkpoint(
        compressed_tensors({**MXFP8, **rotated(32)}, {**MXFP8, **DYNAMIC}, "mxfp8-quantized"),
        lambda: mx("mxfp8"),
        "mxfp8",
        "mx_rotated",
        rotation=32,
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
    "hk_mxfp4-plain": Checkpoint(hk("hk_mxfp4"), lambda: mx("mxfp4"), "mxfp4", "mx"),
    "hk_mxfp4-rotated": Checkpoint(
        hk("hk_mxfp4", rotation=32), lambda: mx("mxfp4"), "mxfp4", "mx_rotated", rotation=32
    ),
}
