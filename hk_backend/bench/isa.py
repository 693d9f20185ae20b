"""Limits HK and torch to one instruction set; imports no torch."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def compiled_for(isa: str) -> str:
    """The folder of what `torch.compile` makes. torch's own key of a compiled graph leaves out the
    instruction set: from another one's folder it takes loops of 16 lanes, and computes with 8."""
    return str(Path(tempfile.gettempdir()) / f"torchinductor_{os.getuid()}_{isa}")


ISA_LIMITS = {
    "avx2": {
        "HK_DEVICE": "cpu:avx2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "TORCHINDUCTOR_CACHE_DIR": compiled_for("avx2"),
    },
    "avx512": {
        "HK_DEVICE": "cpu:avx512",
        "ATEN_CPU_CAPABILITY": "avx512",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "TORCHINDUCTOR_CACHE_DIR": compiled_for("avx512"),
    },
}
"""The environment for HK and torch (its own kernels, MKL, oneDNN, what it compiles), which read it
when they load."""
