"""A GPU device and operators that compute nothing, so that a call takes only its own path."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from hk_backend.devices.hip.device import HipDevice
from hk_backend.devices.hip.emulated import LIBRARY, EmulatedLibrary, loads
from hk_backend.devices.hip.memory import HostMemory
from hk_backend.kernels import catalogue

ARCH = "gfx950"
_library = torch.library.Library("hk_bench", "DEF")  # its operators exist only as long as it does


def nothing_device() -> tuple[HipDevice, EmulatedLibrary]:
    """The hip device over the emulated library, whose launches return at once."""
    library = EmulatedLibrary(LIBRARY)
    library.reset(ARCH)
    library.run_launches(False)
    return HipDevice(library, catalogue(ARCH), HostMemory(), check=loads), library


@cache
def empty_operator(schema: str, shape: Callable[..., Any]) -> Callable[..., Any]:
    """An operator that is registered like the public ones, but only returns what `shape` does."""
    name = schema.partition("(")[0]
    _library.define(schema)
    _library.impl(name, shape, "CPU")
    operator: Callable[..., Any] = getattr(torch.ops.hk_bench, name)
    return operator
