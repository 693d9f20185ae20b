"""vLLM's OpenAI server, with the kernel's leave to use AMX asked for in each of its processes.

    python -m bench_serving.vllm_server --model DIR ...        (vLLM's own arguments)

A process must ask Linux before its first AMX instruction. vLLM's attention kernels leave that to
oneDNN, which does not ask where `machine.workarounds()` holds it below AMX. Spawned engine
processes import this module too, since it is the main one.
"""

from __future__ import annotations

import runpy

import torch

torch.cpu._init_amx()  # false, and harmless, where there is no AMX

if __name__ == "__main__":
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
