"""Limits HK and torch to one instruction set; imports no torch."""

from __future__ import annotations

ISA_LIMITS = {
    "avx2": {
        "HK_DEVICE": "cpu:avx2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
    "avx512": {
        "HK_DEVICE": "cpu:avx512",
        "ATEN_CPU_CAPABILITY": "avx512",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
    },
}
"""The environment for HK and torch (its own kernels, MKL, oneDNN), which read it when they load."""
