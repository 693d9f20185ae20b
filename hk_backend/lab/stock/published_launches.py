"""Launches of the kernels that others published figures of, timed by the clock.

Each problem has the configurations that its source tries or takes; the clock takes the fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch

from hk_backend.lab.foreign.launch import Sampled
from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.timing.launch import spread

LOG2_E = 1.44269504089
XCDS = 8
AMOUNTS = 6
"""Number of different amounts of work that are traced in a launch."""


@dataclass(frozen=True)
class Attention:
    """Prefill attention in bf16 over `[requests, heads, tokens, head_size]`."""

    head_size: int
    causal: bool
    tokens: int
    requests: int = 16
    heads: int = 64
    kv_heads: int = 8
    configurations: Sequence[tuple[int, int, int]] = (
        (128, 128, 2), (128, 64, 2), (128, 64, 3), (128, 64, 1), (128, 32, 2),
    )  # fmt: skip
    """Rows and keys of a tile, and the waves for each SIMD that registers are kept free for."""

    @property
    def flops(self) -> float:
        """Half of them if causal, as the source counts."""
        pairs = self.requests * self.heads * self.tokens**2
        return 4.0 * pairs * self.head_size * (0.5 if self.causal else 1)

    def tensors(self) -> list[torch.Tensor]:
        """q, k, v, log-sum-exp and result, without values."""
        queries = (self.requests, self.heads, self.tokens, self.head_size)
        keys = (self.requests, self.kv_heads, self.tokens, self.head_size)
        dtype = torch.bfloat16
        q, k, v, out = (torch.empty(shape, dtype=dtype) for shape in (queries, keys, keys, queries))
        return [q, k, v, torch.empty(queries[:3]), out]

    def launch(self, tensors: Sequence[torch.Tensor], configuration: tuple[int, int, int]) -> None:
        """Launch the kernel once, wherever Triton's driver runs it."""
        rows, keys, waves = configuration
        q, k, v, _, out = tensors
        kernels: Any = import_module("hk_backend.lab.stock.published_kernels")
        kernels.attention[(-(-self.tokens // rows), self.heads, self.requests)](
            *tensors, *q.stride(), *k.stride(), *v.stride(), *out.stride(),
            SCALE=self.head_size**-0.5 * LOG2_E, HEADS=self.heads, KV_HEADS=self.kv_heads,
            TOKENS=self.tokens, HEAD_SIZE=self.head_size, CAUSAL=self.causal, ROWS=rows, KEYS=keys,
            num_warps=4, num_stages=1, waves_per_eu=waves,
        )  # fmt: skip

    def sampled(self, grid: Sequence[int], configuration: tuple[int, int, int]) -> Sampled:
        """Steps of each workgroup; the next head reads the same keys."""
        rows, keys, _ = configuration
        ends = (np.arange(grid[0]) + 1) * rows if self.causal else np.full(grid[0], self.tokens)
        work = np.tile(np.ceil(ends / keys), grid[1] * grid[2])
        first = spread(work, AMOUNTS)
        return Sampled(work, sorted({*first, *(at + grid[0] for at in first)}), self.flops)


@dataclass(frozen=True)
class Product:
    """Square product in fp16 by 256 workgroups or more, tiles of 256 x 256 and 64 deep."""

    size: int
    configurations: Sequence[tuple[int, int]] = ((8, 256), (8, 512), (8, 0), (4, 256))
    """Rows of tiles that stay together, and number of workgroups; 0: one for each tile."""

    @property
    def flops(self) -> float:
        return 2.0 * self.size**3

    @property
    def tiles(self) -> int:
        side = -(-self.size // 256)
        return side * side

    def tensors(self) -> list[torch.Tensor]:
        return [torch.empty(self.size, self.size, dtype=torch.float16) for _ in range(3)]

    def launch(self, tensors: Sequence[torch.Tensor], configuration: tuple[int, int]) -> None:
        group, workgroups = configuration
        workgroups = workgroups or self.tiles
        kernels: Any = import_module("hk_backend.lab.stock.published_kernels")
        kernels.product[(workgroups,)](
            *tensors, *[self.size] * 6, M=256, N=256, K=64, GROUP=group, WORKGROUPS=workgroups,
            XCDS=XCDS, num_warps=8, num_stages=2, waves_per_eu=0, matrix_instr_nonkdim=16, kpack=1,
        )  # fmt: skip

    def sampled(self, grid: Sequence[int], configuration: tuple[int, int]) -> Sampled:
        return _patches(grid[0], self.tiles, configuration[0], self.flops)


@dataclass(frozen=True)
class GroupedProduct:
    """Products in bf16, each with its own weight, by 256 workgroups; tiles as in `Product`."""

    groups: int
    m: int
    n: int
    k: int
    configurations: Sequence[tuple[int, int]] = ((4, 256),)

    @property
    def flops(self) -> float:
        return 2.0 * self.groups * self.m * self.n * self.k

    def tensors(self) -> list[torch.Tensor]:
        shapes = (
            (self.groups * self.m, self.k),
            (self.groups, self.n, self.k),
            (self.groups * self.m, self.n),
        )
        offsets = torch.arange(self.groups + 1, dtype=torch.int64) * self.m
        return [*(torch.empty(shape, dtype=torch.bfloat16) for shape in shapes), offsets]

    def launch(self, tensors: Sequence[torch.Tensor], configuration: tuple[int, int]) -> None:
        """Launch with the source's three switches of the compiler."""
        group, workgroups = configuration
        kernels: Any = import_module("hk_backend.lab.stock.published_kernels")
        switches = import_module("triton").knobs.amd
        with switches.scope():
            switches.use_async_copy = True
            switches.use_block_pingpong = True
            switches.scalarize_packed_fops = True
            kernels.grouped_product[(workgroups,)](
                *tensors, self.groups, self.n, self.k, self.k, self.n * self.k, self.k, self.n,
                M=256, N=256, K=32, GROUP=group, WORKGROUPS=workgroups, XCDS=XCDS, num_warps=8,
                num_stages=3, waves_per_eu=0, matrix_instr_nonkdim=16, kpack=1,
            )  # fmt: skip

    def sampled(self, grid: Sequence[int], configuration: tuple[int, int]) -> Sampled:
        tiles = self.groups * -(-self.m // 256) * -(-self.n // 256)
        return _patches(grid[0], tiles, configuration[0], self.flops)


Problem = Attention | Product | GroupedProduct


def microseconds(gpu: TritonGpu, of: Problem) -> float:
    """Modelled time of one launch by itself, in the fastest of the configurations."""
    tensors = of.tensors()
    found = []
    for configuration in of.configurations:
        with gpu.timing(_sampler(of, configuration)) as launches:
            of.launch(tensors, configuration)  # type: ignore[arg-type]
        (one,) = launches
        assert one.modelled is not None
        found.append(one.modelled.microseconds)
    return min(found)


def _sampler(of: Problem, configuration: Any) -> Any:
    return lambda grid: of.sampled(grid, configuration)


def _patches(workgroups: int, tiles: int, group: int, flops: float) -> Sampled:
    """Tiles of each workgroup, and two by two workgroups of one XCD, which share both operands.

    Workgroups go round the XCDs, and each XCD has a contiguous piece of the tiles.
    """
    numbers = np.arange(workgroups)
    first = numbers % XCDS * (workgroups // XCDS) + numbers // XCDS
    work = np.maximum(-(-(tiles - first) // workgroups), 0).astype(np.float64)
    near = [XCDS * step for step in (0, 1, group, group + 1)]
    begins = [int(np.argmax(work == amount)) for amount in np.unique(work)]
    samples = {at + step for at in begins for step in near if at + step < workgroups}
    return Sampled(work, sorted(samples), flops)
