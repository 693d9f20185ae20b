"""An engine's OpenAI server, with the kernel's leave to use AMX asked for in each of its processes.

    python -m bench_serving.engine_server MODULE ...        (the server's module; its own arguments)

A process must ask Linux before its first AMX instruction. vLLM's attention kernels leave that to
oneDNN, which does not ask where `machine.workarounds()` holds it below AMX.

Engines choose kernels, and vLLM which of its compiled libraries it loads, by what torch says that
the processor has. Where torch is held to an instruction set (`--isa`), what lies beyond is hidden,
so that they choose as they would on such a machine. Spawned engine processes import this module
too, since it is the main one.
"""

from __future__ import annotations

import os
import runpy
import sys

import torch

AMX = ("_is_amx_tile_supported", "_is_amx_fp16_supported")
AVX512 = ("_is_avx512_supported", "_is_avx512_bf16_supported", "_is_vnni_supported")
BEYOND = {"avx2": (*AVX512, *AMX), "avx512": ("_is_avx512_bf16_supported", *AMX)}
"""Value of ATEN_CPU_CAPABILITY: what torch.cpu may no longer find."""


def hide(isa: str) -> None:
    """Let torch.cpu find nothing beyond `isa`, a key of `BEYOND`; any other value hides nothing."""
    for name in BEYOND.get(isa, ()):
        setattr(torch.cpu, name, lambda: False)


hide(os.environ.get("ATEN_CPU_CAPABILITY", ""))
if torch.cpu._is_amx_tile_supported():
    torch.cpu._init_amx()

if __name__ == "__main__":
    del sys.argv[0]  # the module reads its own arguments behind its name
    runpy.run_module(sys.argv[0], run_name="__main__")
