"""SGLang on a CPU without its kernel package, for hk-backend's tests and its demo.

    SGLANG_PLATFORM=hk_cpu python -m sglang.launch_server --device cpu ...

SGLang asks for a platform in each of its processes (entry point `sglang.srt.platforms`).

PyPI's torchvision, which SGLang imports, is linked to CUDA. With a CPU build of torch its library
does not load, so its operators are missing, and registrations for two of them fail. A .pth file
therefore calls `declare_missing_operators` at every start of Python.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec

NAME = "hk_cpu"
PLATFORM = "sglang_cpu_platform.platform:CpuPlatform"
REGISTRATIONS = "torchvision._meta_registrations"
"""Module that torchvision imports right after it tried to load its library."""
OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def activate() -> str | None:
    """The platform's class if the user names it; it is never chosen automatically."""
    return PLATFORM if os.environ.get("SGLANG_PLATFORM") == NAME else None


def declare_missing_operators() -> None:
    """Declare torchvision's operators when it is imported without its own."""
    sys.meta_path.insert(0, _BeforeRegistrations())  # type: ignore[arg-type]


class _BeforeRegistrations:
    """A finder that finds no module, but sees when torchvision imports `REGISTRATIONS`."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == REGISTRATIONS:
            _declare()
        return None


def _declare() -> None:
    import torch

    for schema in OPERATORS:
        name, arguments = schema.split("(", 1)
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", f"({arguments}")
