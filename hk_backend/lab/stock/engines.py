"""Finds the engine that is installed, and makes it believe that it runs on an AMD GPU.

Without an engine it finds a package of kernels: fbtriton, FlyDSL, or AITER.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from hk_backend.lab.foreign import triton_driver
from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock import aiter_kernels
from hk_backend.lab.stock.comparison import Stock

SOURCES = "vLLM, SGLang, fbtriton, flydsl or amd-aiter"


class NoEngine(RuntimeError):
    """No package of SOURCES is installed here, or it cannot compile."""


def kernels(arch: str) -> Sequence[Stock]:
    """The installed engine's kernels, on an emulated GPU that every Triton kernel here runs on.

    Call it before the engine is imported, and once in a process. Of several packages the first one
    of SOURCES counts.

    Raises:
        ModuleNotFoundError: Triton, or FlyDSL's folder of kernels, is not installed.
        NoEngine: there is none.
    """
    if find_spec("vllm") is not None:
        return _of_vllm(arch)
    if find_spec("sglang") is not None:
        return _of_sglang(arch)
    if _is_installed("fbtriton"):
        return _of_fbtriton(arch)
    if find_spec("flydsl") is not None:
        return _of_flydsl(arch)
    if (root := aiter_kernels.folder()) is not None:
        if arch != aiter_kernels.ARCH:
            raise NoEngine(f"AITER's attention is taken for {aiter_kernels.ARCH} alone")
        return _of_aiter(arch, root)
    raise NoEngine(f"no kernels to compare with: install {SOURCES} in this environment")


def _is_installed(distribution: str) -> bool:
    """Whether a package is installed whose module has another package's name."""
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def _of_vllm(arch: str) -> Sequence[Stock]:
    from hk_backend.lab.stock import (
        dot_scaled,
        vllm_attention,
        vllm_decode,
        vllm_linear,
        vllm_platform,
    )

    vllm_platform.pretend(arch)
    gpu = triton_driver.install(arch)
    products = [*vllm_linear.kernels(gpu), *dot_scaled.kernels(gpu)]
    return [*vllm_attention.kernels(gpu), *vllm_decode.kernels(gpu), *products]


def _of_sglang(arch: str) -> Sequence[Stock]:
    from hk_backend.lab.stock import sglang_attention, sglang_decode, sglang_linear

    gpu = triton_driver.install(arch)
    sglang_attention.import_kernels(arch)
    attention: list[Stock] = [*sglang_attention.kernels(gpu), *sglang_decode.kernels(gpu)]
    return [*attention, *sglang_linear.kernels(gpu)]


def _of_aiter(arch: str, root: Path) -> Sequence[Stock]:
    """AITER's attention, and its Triton products if Triton is installed, too."""
    if find_spec("triton") is None:
        return [*aiter_kernels.kernels(TritonGpu(arch), root)]
    from hk_backend.lab.stock import aiter_products

    gpu = triton_driver.install(arch)
    products = aiter_products.kernels(gpu, root.parent / "aiter")
    return [*aiter_kernels.kernels(gpu, root), *products]


def _of_fbtriton(arch: str) -> Sequence[Stock]:
    from hk_backend.lab.stock import fbtriton_kernels

    return fbtriton_kernels.kernels(triton_driver.install(arch))


def _of_flydsl(arch: str) -> Sequence[Stock]:
    from hk_backend.lab.stock import flydsl_gpu, flydsl_kernels

    if find_spec("kernels") is None:
        raise NoEngine("FlyDSL's wheel has no kernels; valid: its repository on PYTHONPATH")
    try:
        return flydsl_kernels.kernels(flydsl_gpu.install(arch))
    except flydsl_gpu.NoLinker as error:
        raise NoEngine(str(error)) from None
