"""Hides from an engine what its process is held below; imports nothing of HK."""

from __future__ import annotations

import os

import torch

AMX_FP16 = ("_is_amx_fp16_supported",)
AMX = ("_is_amx_tile_supported", *AMX_FP16)
BF16 = ("_is_avx512_bf16_supported", *AMX)
AVX512 = ("_is_avx512_supported", "_is_vnni_supported", *BF16)
BEYOND: dict[str, dict[str, tuple[str, ...]]] = {
    "ATEN_CPU_CAPABILITY": {"avx2": AVX512},
    "ONEDNN_MAX_CPU_ISA": {
        "AVX512_CORE": BF16,
        "AVX512_CORE_BF16": AMX,
        "AVX512_CORE_AMX": AMX_FP16,
    },
}
"""Names that torch.cpu may no longer find, by variable and value.

Each value holds a process to a level of HK's (hk_backend/bench/isa.py): torch has no name for those
with bfloat16."""


def hide() -> None:
    """Let torch.cpu find nothing beyond the level that this process is held to, if it is to one.

    Engines choose kernels, and vLLM which of its compiled libraries it loads, by what torch.cpu
    finds: so they choose as they would on such a machine.
    """
    for variable, values in BEYOND.items():
        for name in values.get(os.environ.get(variable, ""), ()):
            setattr(torch.cpu, name, lambda: False)
