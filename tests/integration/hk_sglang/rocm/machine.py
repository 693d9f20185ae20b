"""Makes SGLang behave as on an MI355X, in a process without a GPU.

The driver's answers and the libraries of compiled kernels are stubs. SGLang's own code runs over
them: the detection of ROCm, the resolution of its arguments, its models, pools and attention
backends. Its Triton kernels are compiled for the MI355X and run in the emulator. AITER's are
torch's (aiter_kernels.py). A kernel of neither kind raises its name.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

ARCH = "gfx950"
GPU = SimpleNamespace(
    name="AMD Instinct MI355X",
    gcnArchName=f"{ARCH}:sramecc+:xnack-",
    multi_processor_count=256,
    total_memory=288 << 30,
    major=9,
    minor=5,
    warp_size=64,
)
COMPILED = ("aiter", "sgl_kernel")
"""Libraries of compiled kernels. On gfx950 SGLang 0.5.23 does not start without either."""
CALLED_WHEN_IMPORTED = ("get_hip_quant", "make_kernel_repr")


def pretend() -> None:
    """Make this process's SGLang find one MI355X. Call it before anything of SGLang is imported."""
    assert "sglang" not in sys.modules
    import_module("tvm_ffi")  # imported now, it does not compile for ROCm
    torch.version.hip, torch.version.cuda = "7.0.51831", None
    answers = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "is_current_stream_capturing": False,
        "get_device_properties": GPU,
        "get_device_name": GPU.name,
        "get_device_capability": (GPU.major, GPU.minor),
        "mem_get_info": (GPU.total_memory, GPU.total_memory),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *args, answer=answer, **named: answer)
    stub(COMPILED)

    from hk_backend.lab.foreign import triton_driver

    triton_driver.install(ARCH)

    from sglang.kernels.ops.kvcache import kvcache
    from sglang.srt.utils import common

    common.get_amdgpu_memory_capacity = lambda: GPU.total_memory >> 20  # rocm-smi would say it
    kvcache.can_use_store_cache = lambda *sizes: False  # hipcc compiles it; SGLang uses torch


def stub(libraries: Sequence[str]) -> None:
    """Let this process import any module of these libraries, and any name from it."""
    sys.meta_path.insert(0, _Libraries(libraries))


class _Libraries:
    """Finds every module of the given libraries."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in self._names:
            return None
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Library(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module empty: its names are made when they are asked for."""


class _Library(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = _Compiled(f"{self.__name__}.{name}")
        setattr(self, name, found)
        return found


class _Compiled:
    """A kernel, or a holder of kernels, in a library that is not here."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Compiled(f"{self._name}.{name}")

    def __call__(self, *args: Any, **named: Any) -> Any:
        if self._name.rpartition(".")[2] in CALLED_WHEN_IMPORTED:
            return _Compiled(f"{self._name}()")
        raise NotImplementedError(f"{self._name}: no such kernel in torch")
