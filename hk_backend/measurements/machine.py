"""Describes this machine for its file of measurements."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch

from hk_backend import __version__, machine
from hk_backend.terms.measurements import Machine

LIMITS = ("ATEN_CPU_CAPABILITY", "DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA")
"""Environment variables that restrict the instruction sets of torch and oneDNN."""
EXTENSIONS = {"hip": "_hip", "emulated": "_emulator"}
"""Compiled extension of HK that affects a device's times, by the kind of GPU device."""


def this_machine(device: str) -> Machine:
    """The machine as it is now.

    Args:
        device: the name of HK's device, "cpu:avx512", "hip:gfx950" or "emulated:gfx950". Threads of
            torch and its instruction sets only matter for a CPU device.
    """
    kind = device.partition(":")[0]
    on_host = kind not in EXTENSIONS
    if kind == "hip":
        processor = torch.cuda.get_device_name()
    else:
        processor = machine.cpu_model() if on_host else device
    limits = [f"{name}={os.environ[name]}" for name in LIMITS if os.environ.get(name)]
    return Machine(
        processor=processor,
        torch=str(torch.__version__),
        hk_backend=__version__,
        build=build_of(EXTENSIONS.get(kind, "_cpu")),
        threads=torch.get_num_threads() if on_host else 1,
        limits=tuple(limits if on_host else ()),
    )


@cache
def build_of(extension: str) -> str:
    """The start of the SHA-256 of a compiled extension of `hk_backend`; "none" if it is not there.

    A development build changes its kernels without a new version.
    """
    found = find_spec(f"hk_backend.{extension}")
    if found is None or found.origin is None:
        return "none"
    return hashlib.sha256(Path(found.origin).read_bytes()).hexdigest()[:12]
