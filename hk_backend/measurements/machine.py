"""The machine that measures, as its file of measurements describes it."""

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
"""Variables that restrict the instruction sets of torch and oneDNN."""


def this_machine(device: str) -> Machine:
    """The machine as it is now, with the threads that torch uses now.

    Args:
        device: the name of HK's device, "cpu:avx512" or "hip:gfx950".
    """
    on_gpu = device.startswith("hip")
    return Machine(
        processor=torch.cuda.get_device_name() if on_gpu else machine.cpu_model(),
        torch=str(torch.__version__),
        hk_backend=__version__,
        build=build_of("_hip" if on_gpu else "_cpu"),
        threads=torch.get_num_threads(),
        limits=tuple(f"{name}={os.environ[name]}" for name in LIMITS if os.environ.get(name)),
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
