"""The devices whose kernels compute an engine's layers here, and the kernels missing on each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
import torch

from tests.integration.shared.checkpoints import Scheme

CPU, GFX950 = DEVICES = ("cpu", "emulated:gfx950")
"""Values of HK_DEVICE."""
on_devices = pytest.mark.parametrize("device", DEVICES, indirect=True)
"""Mark for tests of layers: each device in turn, which the fixture `device` sets as HK_DEVICE."""
on_gfx950 = pytest.mark.parametrize("device", [GFX950], indirect=True)

MISSING = {
    "mx": r"gfx950 has no kernels for mx\w+ weights"
    r"(, only bf16, fp16, fp8_e4m3fn| with activations 'mx\w+')",
}
"""Kinds of weight scales that gfx950 has no kernels for, and the reason that it gives."""
in_dtypes = pytest.mark.parametrize(
    ("device", "dtype"),
    [
        *((CPU, dtype) for dtype in (torch.bfloat16, torch.float16, torch.float32)),
        *((GFX950, dtype) for dtype in (torch.bfloat16, torch.float16)),
    ],
    indirect=["device"],
    ids=str,
)
"""Each device, with each dtype of unquantised layers that it serves."""


def in_schemes(
    checkpoints: Mapping[str, Scheme], names: Iterable[str] = ()
) -> pytest.MarkDecorator:
    """Mark for a test: each device, with the name of each checkpoint (or name) that it serves."""
    cells = [
        (device, name)
        for device in DEVICES
        for name in names or checkpoints
        if not unserved(device, checkpoints[name].scale_kind)
    ]
    return pytest.mark.parametrize(("device", "name"), cells, indirect=["device"])


def unserved(device: str, scale_kind: str) -> str:
    """A pattern of why `device` refuses a weight with such scales; empty if it serves it."""
    return MISSING.get(scale_kind, "") if device == GFX950 else ""
