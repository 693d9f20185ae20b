"""Small programs on the timing model: assembled, traced, replayed."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hk_backend import _emulator
from tests.emulator.assembly import PROLOGUE, assemble

CLOCK = 2.4  # GHz: of the bandwidths in bytes per clock


def trace(
    body: str,
    *,
    prologue: str = PROLOGUE,
    arch: str = "gfx950",
    waves: int = 1,
    grid: int = 1,
    data: np.ndarray | None = None,
    **assembly: Any,
) -> _emulator.Trace:
    """Of every workgroup; `data` is mapped at s[4:5] and s[6:7]."""
    kernel = _emulator.CodeObject.load(assemble(prologue + body, arch=arch, **assembly)).kernel("k")
    machine = _emulator.Machine(arch)
    at = 0 if data is None else machine.map(data.ctypes.data, data.nbytes, "data")
    return machine.trace(
        kernel, [grid], [64 * waves], struct.pack("<2Q", at, at), workgroups=range(grid)
    )


def replay(
    traced: _emulator.Trace,
    arch: str = "gfx950",
    slots: Sequence[Sequence[int]] = ((0,),),
    active: int = 1,
    **changes: float,
) -> _emulator.CuTime:
    """On one CU of `active`, every slot from clock 0 on."""
    parameters = _emulator.TimingParameters(arch, changes)
    return _emulator.replay(traced, parameters, slots, [0] * len(slots), active, CLOCK)


def clocks(body: str, changes: Mapping[str, float] | None = None, **options: Any) -> int:
    """Of a program on an otherwise empty CU."""
    arch = options.get("arch", "gfx950")
    parameters = _emulator.TimingParameters(arch, dict(changes or {}))
    return _emulator.replay(trace(body, **options), parameters, [[0]], [0], 1, CLOCK).clocks
