"""An engine's OpenAI server, with the kernel's leave to use AMX asked for in each of its processes.

    python -m bench_serving.engine_server MODULE ...        (the server's module; its own arguments)

A process must ask Linux before its first AMX instruction. vLLM's attention kernels leave that to
oneDNN, which does not ask where `machine.workarounds()` holds it below AMX.

Where torch is held to an instruction set (`--isa`), what lies beyond is hidden from the engine too.
Spawned engine processes import this module too, since it is the main one.
"""

from __future__ import annotations

import runpy
import sys

import torch

from bench_serving.isa import hide

hide()
if torch.cpu._is_amx_tile_supported():
    torch.cpu._init_amx()

if __name__ == "__main__":
    del sys.argv[0]  # the module reads its own arguments behind its name
    runpy.run_module(sys.argv[0], run_name="__main__")
