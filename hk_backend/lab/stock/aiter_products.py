"""AITER's Triton products of MXFP4, which vLLM and SGLang call on an MI355X.

Only the sources of these kernels are imported, under the names that they have in AITER's wheel:
the wheel's own `__init__` files want ROCm. Each shape takes the configuration that AITER ships.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock.layers import Layer, Operands
from hk_backend.lab.stock.linear import NO_ACCUMULATOR, StockLinear
from hk_backend.lab.stock.vllm_platform import stub_module

NAME = "AITER"
FOLDERS = ("aiter", "aiter.ops", "aiter.ops.triton")
"""Packages whose `__init__` is not run."""
PRODUCTS = "aiter.ops.triton.gemm_afp4wfp4"
XCDS = 8
"""Workgroups go round the XCDs. These kernels give each XCD a contiguous piece of the tiles, so
that neighbouring tiles are as far apart."""
SHUFFLED_ROWS, SHUFFLED_SCALES, TILE = 32, 8, 16
"""Rows, and scales of a row, that are shuffled together; rows of the weight that are."""


def expose(package: Path) -> None:
    """Let AITER's modules be imported from the folder of its wheel's package."""
    for name in FOLDERS:
        module = stub_module(name)
        module.__path__ = [str(package.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = module


def run_plain(of: Operands) -> torch.Tensor:
    """`gemm_afp4wfp4`; the scales of the weight lie along its rows, as vLLM gives them."""
    assert of.weight_scale is not None
    scales = of.weight_scale.t().contiguous().t()
    out: torch.Tensor = import_module(PRODUCTS).gemm_afp4wfp4(
        of.x, of.weight, of.x_scale, scales, torch.bfloat16, config=_configuration(of, False)
    )
    return out


def run_shuffled(of: Operands) -> torch.Tensor:
    """`gemm_afp4wfp4_preshuffled_weight_scales`; operands are shuffled before, untimed."""
    assert of.x_scale is not None
    assert of.weight_scale is not None
    weight = import_module("aiter.ops.shuffle").shuffle_weight(of.weight)
    of_x = of.x_scale if of.layer.m < SHUFFLED_ROWS else _shuffled(of.x_scale)
    out: torch.Tensor = import_module(PRODUCTS).gemm_afp4wfp4_preshuffled_weight_scales(
        of.x,
        weight.view(of.layer.n // TILE, -1),
        of_x,
        _shuffled(of.weight_scale),
        torch.bfloat16,
        config=_configuration(of, True),
        use_aot=False,
    )
    return out


def _configuration(of: Operands, shuffled: bool) -> dict[str, Any]:
    """AITER's choice for the shape, copied, since a launch changes it."""
    take = import_module(PRODUCTS)._get_config
    return dict(take(of.layer.m, of.layer.n, of.layer.k // 2, shuffled))


def _shuffled(scales: torch.Tensor) -> torch.Tensor:
    """Scales in the order of lanes, 32 rows by 8 scales; rows are filled up."""
    missing = -scales.shape[0] % SHUFFLED_ROWS
    padded = torch.nn.functional.pad(scales, (0, 0, 0, missing))
    rows, columns = padded.shape
    tiles = padded.view(rows // SHUFFLED_ROWS, 2, TILE, columns // SHUFFLED_SCALES, 2, 4)
    return tiles.permute(0, 3, 5, 2, 4, 1).reshape(rows // SHUFFLED_ROWS, -1)


def lacks(layer: Layer) -> str:
    if layer.n % SHUFFLED_ROWS or layer.k % (SHUFFLED_SCALES * 32):
        return f"N must be a multiple of {SHUFFLED_ROWS}, and K of {SHUFFLED_SCALES * 32}"
    return ""


def checked(layer: Layer) -> Layer:
    """Whole tiles of every configuration: AITER wraps columns, and two workgroups write them."""
    return replace(layer, n=512, k=1024)


def kernels(gpu: TritonGpu, package: Path) -> list[StockLinear]:
    """Both products of MXFP4 activations with an MXFP4 weight."""
    expose(package)

    def product(name: str, run: Callable[[Operands], torch.Tensor]) -> StockLinear:
        named = f"{NAME} {name}"
        return StockLinear(
            gpu, named, ("mxfp4",), run, lacks, checked, NO_ACCUMULATOR, apart=(1, XCDS)
        )

    return [
        product("gemm_afp4wfp4", run_plain),
        product("gemm_afp4wfp4, preshuffled", run_shuffled),
    ]
