"""A whole vLLM engine on an emulated GPU: what serves a model is the code that an MI355X runs.

    gpu = vllm_engine.install("gfx950")  # before vLLM is imported
    llm = vllm.LLM("model", dtype="bfloat16", kv_cache_memory_bytes=64 << 20)
    llm.generate(["Hello"])
    gpu.launches  # every launch of a kernel that is not HK's

The engine is vLLM's build for CPUs, with tensors in the CPU's memory. Its attention backend, cache
writes, block tables and sampling are its own Triton kernels; Inductor makes Triton kernels of
norms, activations and rotary embeddings. HK serves prefill attention and linear layers, if the
environment asks for it (HK_BACKEND=1, HK_DEVICE=emulated:gfx950) and the clock gives it no more
time than vLLM's own kernel (HK_EVIDENCE=measure). Linear layers without HK are torch's on the CPU,
and so is the choice of the likeliest token.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import torch

from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock import emulated_gpu

BACKEND = "TRITON_ATTN"
"""The attention backend unless the user chooses one: all of its kernels are written in Triton."""
CAPABILITIES = {"gfx942": (9, 4), "gfx950": (9, 5)}
"""Capability of a GPU of each arch, as torch and vLLM name it."""
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # kernels run in the process that calls `install`
    "VLLM_DISABLE_COMPILE_CACHE": "1",  # what it keeps does not know the arch
}


def install(arch: str = "gfx950") -> TritonGpu:
    """Make the vLLM engines of this process run on an emulated GPU.

    Raises:
        ModuleNotFoundError: Triton or vLLM is not installed.
        RuntimeError: vLLM has been imported already.
        ValueError: no such arch.
    """
    gpu = emulated_gpu.install_before("vllm", arch)
    os.environ.update(ENVIRONMENT)
    import_module("vllm")
    answer_as(arch)
    _choose_backend()
    return gpu


def answer_as(arch: str) -> None:
    """Let torch and vLLM's CPU platform say what a GPU of `arch` can do, in this process."""
    cpu: Any = import_module("vllm.platforms.cpu")
    interface: Any = import_module("vllm.platforms.interface")
    torch.cuda.get_device_capability = lambda device=None: CAPABILITIES[arch]
    found = interface.DeviceCapability(*CAPABILITIES[arch])
    cpu.CpuPlatform.get_device_capability = staticmethod(lambda device_id=0: found)


def _choose_backend() -> None:
    """Let vLLM's CPU platform take backends of a GPU; HK's plugin wraps them when it loads."""
    cpu: Any = import_module("vllm.platforms.cpu")
    registry: Any = import_module("vllm.v1.attention.backends.registry")

    def get_attn_backend_cls(selected_backend: Any, *_: Any, **__: Any) -> str:
        member = selected_backend or registry.AttentionBackendEnum[BACKEND]
        return str(member.get_path())

    cpu.CpuPlatform.get_attn_backend_cls = staticmethod(get_attn_backend_cls)
