"""`scale` on the cpu device, computed in torch."""

from __future__ import annotations

import torch

from hk_backend.devices.cpu.extension import Extension
from tests.operators.scaling.ops.scale import ScaleArguments


def run(on: Extension, of: ScaleArguments) -> None:
    torch.mul(of.x, of.factor, out=of.out)
