"""Runs an engine's OpenAI server, after asking Linux for permission to use AMX.

`python -m bench_serving.engine_server MODULE ...` runs the server's module with its own arguments.

A process must ask Linux before its first AMX instruction. vLLM's attention kernels rely on oneDNN
to ask, but oneDNN does not if `machine.workarounds()` limits it to less than AMX.

If torch is limited to an instruction set (`--isa`), larger ones are also hidden from the engine.
Processes that the engine spawns import this module, too, since it is the main one.
"""

from __future__ import annotations

import runpy
import sys

import torch

from bench_serving.isa import hide_instruction_sets

hide_instruction_sets()
if torch.cpu._is_amx_tile_supported():
    torch.cpu._init_amx()

if __name__ == "__main__":
    del sys.argv[0]  # the module expects its own arguments behind its name
    runpy.run_module(sys.argv[0], run_name="__main__")
