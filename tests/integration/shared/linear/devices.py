"""The devices whose kernels compute an engine's layers here, and what each refuses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
import torch

from hk_backend.terms.weight_format import FORMATS
from tests.integration.shared.checkpoints import Scheme

CPU, GFX950 = DEVICES = ("cpu", "emulated:gfx950")
"""Values of HK_DEVICE."""
on_devices = pytest.mark.parametrize("device", DEVICES, indirect=True)
"""Mark for tests of layers: each device in turn, which the fixture `device` sets as HK_DEVICE."""
on_gfx950 = pytest.mark.parametrize("device", [GFX950], indirect=True)

NOT_ROUNDED = r"gfx950 has no kernels for activations '\w+' in torch\.\w+ with mx\w+ weights"
"""gfx950's reason to refuse MX weights alone: they are rotated, or stand beside float16. The range
of float16 is smaller than that of MX scales."""
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
        if not unserved(device, checkpoints[name])
    ]
    return pytest.mark.parametrize(("device", "name"), cells, indirect=["device"])


def unserved(device: str, scheme: Scheme, dtype: torch.dtype = torch.bfloat16) -> str:
    """A pattern of why `device` refuses the layers of a checkpoint; empty if it serves them."""
    rounds = FORMATS[scheme.format].of_activations(scheme.activations) is not None
    if device != GFX950 or scheme.scale_kind != "mx" or rounds:
        return ""
    return NOT_ROUNDED if scheme.rotation or dtype == torch.float16 else ""
