"""Finds the engine that is installed, and makes it believe that it runs on an AMD GPU."""

from __future__ import annotations

from importlib.util import find_spec

from hk_backend.lab.foreign import triton_driver
from hk_backend.lab.stock.comparison import Stock


class NoEngine(RuntimeError):
    """Neither vLLM nor SGLang is installed here."""


def kernels(arch: str) -> list[Stock]:
    """The installed engine's kernels, on an emulated GPU that every Triton kernel here runs on.

    Call it before the engine is imported, and once in a process.

    Raises:
        ModuleNotFoundError: Triton is not installed.
        NoEngine: there is no engine.
    """
    if find_spec("vllm") is not None:
        return _of_vllm(arch)
    if find_spec("sglang") is not None:
        return _of_sglang(arch)
    raise NoEngine("no kernels to compare with: install vLLM or SGLang in this environment")


def _of_vllm(arch: str) -> list[Stock]:
    from hk_backend.lab.stock import vllm_attention, vllm_linear, vllm_platform

    vllm_platform.pretend(arch)
    gpu = triton_driver.install(arch)
    return [*vllm_attention.kernels(gpu), *vllm_linear.kernels(gpu)]


def _of_sglang(arch: str) -> list[Stock]:
    from hk_backend.lab.stock import sglang_attention

    gpu = triton_driver.install(arch)
    sglang_attention.import_kernels(arch)
    return [*sglang_attention.kernels(gpu)]
