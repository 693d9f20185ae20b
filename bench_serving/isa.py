"""What an engine may find of the processor; imports nothing of HK."""

from __future__ import annotations

import torch

AMX = ("_is_amx_tile_supported", "_is_amx_fp16_supported")
AVX512 = ("_is_avx512_supported", "_is_avx512_bf16_supported", "_is_vnni_supported")
BEYOND = {"avx2": (*AVX512, *AMX), "avx512": ("_is_avx512_bf16_supported", *AMX)}
"""Value of ATEN_CPU_CAPABILITY: what torch.cpu may no longer find."""


def hide(isa: str) -> None:
    """Let torch.cpu find nothing beyond `isa`, a key of `BEYOND`; any other value hides nothing.

    Engines choose kernels, and vLLM which of its compiled libraries it loads, by what torch.cpu
    finds: so they choose as they would on such a machine.
    """
    for name in BEYOND.get(isa, ()):
        setattr(torch.cpu, name, lambda: False)
