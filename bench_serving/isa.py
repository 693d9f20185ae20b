"""Hides instruction sets above the process's limit from an engine; imports nothing of HK."""

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
"""Functions of torch.cpu that must return False, by environment variable and its value.

Each value limits a process to one of HK's instruction sets (hk_backend/lab/bench/isa.py). torch has
no names for those with bfloat16.
"""


def hide_instruction_sets() -> None:
    """Let torch.cpu report no instruction set above the limit of this process, if it has one.

    By these reports engines choose kernels, and vLLM its compiled library. They then choose as on a
    machine that has no more.
    """
    for variable, values in BEYOND.items():
        for name in values.get(os.environ.get(variable, ""), ()):
            setattr(torch.cpu, name, lambda: False)
