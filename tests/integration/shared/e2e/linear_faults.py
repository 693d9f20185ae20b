"""Deliberate faults in HK's linear layers: each must turn an engine's answers red.

They come in below the route, where it calls the operator, in whatever process the plugin lives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hk_backend.engine.linear import route
from hk_backend.ops import PackedWeight
from hk_backend.ops import linear as healthy
from tests.integration.shared.checkpoints import SCHEMES, Made
from tests.integration.shared.e2e.rotation_faults import ROTATION_FAULTS
from tests.integration.shared.e2e.rounding import assert_as_exact, error_of
from tests.integration.shared.e2e.scenario import Round, Scenario, ScenarioResult
from tests.integration.shared.linear.devices import CPU, GFX950, unserved
from tests.models import TINY_KV_HEADS, random_prompts

LENGTHS = [7, 64, 100]
STEP_BYTES = 128
"""Of a row, that one step of a kernel multiplies."""


def next_scale(x: torch.Tensor, weight: PackedWeight, *rest: Any) -> torch.Tensor:
    """Every output feature by the scale of the next one, every block by that of the next."""
    factors, blocks = weight.factors, weight.block_scales
    moved = replace(
        weight,
        factors=None if factors is None else factors.roll(1),
        block_scales=None if blocks is None else blocks.roll(1, -1),
    )
    return healthy(x, moved, *rest)


def dropped_step(x: torch.Tensor, weight: PackedWeight, *rest: Any) -> torch.Tensor:
    """The last step along K never multiplied."""
    x = x.clone()
    x[..., -STEP_BYTES * weight.n * weight.k // weight.data.nbytes :] = 0
    return healthy(x, weight, *rest)


def swapped_shards(x: torch.Tensor, weight: PackedWeight, *rest: Any) -> torch.Tensor:
    """The last two shards of a merged layer in each other's place: k and v, or gate and up."""
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
    if not unserved(GFX950, SCHEMES[scheme].scale_kind)
}
"""Schemes of checkpoints that gfx950 serves, and the faults that their layers have."""
EACH = [(scheme, fault) for scheme, faults in FAULTY.items() for fault in faults]


def scenarios(scheme: str, made: Made, engine: dict[str, Any]) -> list[Scenario]:
    """Of a tiny Llama in bfloat16: on the emulated GPU once as it is, then with every fault; and
    without them on the cpu device."""
    prompts = random_prompts(LENGTHS, seed=11)
    faulty = [Round(prompts, 1, mutation=fault) for fault in FAULTY[scheme]]
    healthy = Round(prompts, 3)
    return [
        Scenario(
            name_on(device, scheme),
            str(made.checkpoint),
            asked,
            "bfloat16",
            engine,
            environment={"HK_DEVICE": device},
        )
        for device, asked in ((GFX950, [healthy, *faulty]), (CPU, [healthy]))
    ]


def name_on(device: str, scheme: str) -> str:
    """Of the scenario on `device`."""
    return f"{scheme}-faults-{device.rpartition(':')[2]}"


def assert_red(fault: str, found: ScenarioResult, cpu: ScenarioResult, truth: Path) -> None:
    """The healthy round is as exact as the cpu device, and the one with `fault` is not, although
    HK counts it as its own."""
    stock = error_of(cpu.rounds, str(truth))
    healthy, *faulty = found.rounds
    assert_as_exact(error_of([healthy], str(truth)), stock)
    index = FAULTY[found.name.partition("-faults")[0]].index(fault)
    before, item = found.rounds[index], faulty[index]
    assert item.workers[0].mutated_calls > before.workers[0].mutated_calls
    assert item.workers[0].routes["linear"]["on"]
    with pytest.raises(AssertionError, match=r"mean error .*, stock has"):
        assert_as_exact(error_of([item], str(truth)), stock)


def install(name: str, patch: pytest.MonkeyPatch, tell: Callable[[], object]) -> None:
    """For as long as `patch` lasts; `tell` hears of each call."""

    def linear(x: torch.Tensor, weight: Any, *rest: Any) -> torch.Tensor:
        tell()
        *arguments, _device = rest
        return LINEAR_FAULTS[name](x, PackedWeight.from_flat(weight), *arguments)

    patch.setattr(route, "linear_of_flat", linear)
