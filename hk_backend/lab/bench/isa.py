"""Limits HK and torch to one instruction set; imports no torch."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def compiled_for(isa: str) -> str:
    """The folder for results of `torch.compile`, one for each instruction set.

    torch's own key of a compiled graph does not include the instruction set. With a shared folder
    it takes loops compiled for 16 lanes and runs them with 8.
    """
    return str(Path(tempfile.gettempdir()) / f"torchinductor_{os.getuid()}_{isa}")


def _limit(isa: str, torch: str, mkl: str, onednn: str) -> dict[str, str]:
    """Variables that limit HK to `isa`, and torch, MKL and oneDNN to their own names for it."""
    return {
        "HK_DEVICE": f"cpu:{isa}",
        "ATEN_CPU_CAPABILITY": torch,
        "MKL_ENABLE_INSTRUCTIONS": mkl,
        "ONEDNN_MAX_CPU_ISA": onednn,
        "TORCHINDUCTOR_CACHE_DIR": compiled_for(isa),
    }


ISA_LIMITS = {
    "avx2": _limit("avx2", "avx2", "AVX2", "AVX2"),
    "avx512": _limit("avx512", "avx512", "AVX512", "AVX512_CORE"),
    "avx512_bf16": _limit("avx512_bf16", "avx512", "AVX512", "AVX512_CORE_BF16"),
    "amx": _limit("amx", "avx512", "AVX512", "AVX512_CORE_AMX"),
}
"""Environment variables that limit HK and torch to an instruction set, by its name.

HK and torch (its own kernels, MKL, oneDNN, compiled code) read them when they load.
"""
