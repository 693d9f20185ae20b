"""Deliberate faults in HK's linear layers: each must turn an engine's answers red.

A fault comes in below the route, where it calls the operator, in the plugin's process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from hk_backend.engine.linear import route
from hk_backend.ops import PackedWeight
from hk_backend.ops import linear as healthy
from hk_backend.terms.weight_format import ROTATED
from tests.integration.shared.checkpoints import SCHEMES
from tests.integration.shared.linear.devices import GFX950, unserved
from tests.models import TINY_KV_HEADS

LENGTHS = [7, 64, 100]
STEP_BYTES = 128
"""Bytes of a weight's row that one step of a kernel multiplies."""


def next_scale(x: torch.Tensor, weight: PackedWeight, *rest: Any) -> torch.Tensor:
    """Use the next output feature's scale for each feature, or the next block's for each block."""
    factors, blocks = weight.factors, weight.block_scales
    moved = replace(
        weight,
        factors=None if factors is None else factors.roll(1),
        block_scales=None if blocks is None else blocks.roll(1, -1),
    )
    return healthy(x, moved, *rest)


def dropped_step(x: torch.Tensor, weight: PackedWeight, *rest: Any) -> torch.Tensor:
    """Leave out the last step along K."""
    x = x.clone()
    x[..., -STEP_BYTES * weight.n * weight.k // weight.data.nbytes :] = 0
    return healthy(x, weight, *rest)


def swapped_shards(x: torch.Tensor, weight: PackedWeight, *rest: Any) -> torch.Tensor:
    """Exchange the last two shards of a merged layer: k and v, or gate and up."""
    out = healthy(x, weight, *rest)
    width = {QKV: KEYS, GATE_UP: GATE_UP // 2}.get(weight.n)
    if width is not None:
        first, second = out[..., -2 * width : -width].clone(), out[..., -width:].clone()
        out[..., -2 * width : -width], out[..., -width:] = second, first
    return out


HEAD_SIZE, HIDDEN = 64, 256
KEYS = TINY_KV_HEADS * HEAD_SIZE
QKV, GATE_UP = 2 * KEYS + 2 * HIDDEN, 4 * HIDDEN
"""Output features of merged layers of the tiny Llama with heads of 64."""


def not_rotated(x: torch.Tensor, weight: PackedWeight, *rest: Any) -> torch.Tensor:
    """Round the inputs without the rotation."""
    rounded = ROTATED.get(weight.activations, weight.activations)
    return healthy(x, replace(weight, activations=rounded, rotation=0), *rest)


def half_a_block(x: torch.Tensor, weight: PackedWeight, *rest: Any) -> torch.Tensor:
    """Rotate half as many channels together."""
    return healthy(x, replace(weight, rotation=weight.rotation // 2), *rest)


ROTATION_FAULTS: dict[str, Callable[..., torch.Tensor]] = {
    fault.__name__: fault for fault in (not_rotated, half_a_block)
}


KERNEL_FAULTS: dict[str, Callable[..., torch.Tensor]] = {
    fault.__name__: fault for fault in (next_scale, dropped_step, swapped_shards)
}
LINEAR_FAULTS = KERNEL_FAULTS | ROTATION_FAULTS


FAULTY = {
    scheme: faults
    for scheme, faults in (
        ("ct-channel-token", tuple(KERNEL_FAULTS)),
        ("fp8-block", (next_scale.__name__,)),
    )
    if not unserved(GFX950, SCHEMES[scheme])
}
"""Schemes of checkpoints that gfx950 serves, and the faults of their layers."""
EACH = [(scheme, fault) for scheme, faults in FAULTY.items() for fault in faults]


def install(name: str, patch: pytest.MonkeyPatch, tell: Callable[[], object]) -> None:
    """Put the fault in place for as long as `patch` lasts; `tell` hears of each call."""

    def linear(x: torch.Tensor, weight: Any, *rest: Any) -> torch.Tensor:
        tell()
        *arguments, _device = rest
        return LINEAR_FAULTS[name](x, PackedWeight.from_flat(weight), *arguments)

    patch.setattr(route, "linear_of_flat", linear)
