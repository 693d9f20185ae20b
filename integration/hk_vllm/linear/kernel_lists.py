"""Puts HK first in vLLM's lists of linear kernels; layers that it refuses go to the next kernel."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from vllm.model_executor.kernels import linear as lists
from vllm.platforms import PlatformEnum

from hk_backend.engine import loggers
from hk_vllm.linear.fp8_kernels import (
    HKFp8BlockLinearKernel,
    HKFp8LinearKernel,
    HKWeightOnlyFp8LinearKernel,
)
from hk_vllm.linear.kernel import HKKernel
from hk_vllm.linear.mx_kernels import HKMxfp4LinearKernel, HKMxfp6LinearKernel, HKMxfp8LinearKernel

logger = loggers.of("vllm", "linear")


def install() -> None:
    """Puts HK's classes first in the lists of CPU and ROCm; harmless to call again.

    Kernels that another plugin has put first stay before HK's.
    """
    for name, kernel in KERNELS.items():
        by_platform = getattr(lists, name)
        for platform in (PlatformEnum.CPU, PlatformEnum.ROCM):
            kernels = by_platform.setdefault(platform, [])
            if kernel not in kernels:
                first = list(takewhile(is_foreign, kernels))
                kernels.insert(len(first), kernel)
                for each in first:
                    said = "hk_backend: %s, which another plugin put first, stays before HK's"
                    path = f"{each.__module__}.{each.__name__}"
                    loggers.info_once(logger, said, f"{name}: {path}")


def is_foreign(kernel: type) -> bool:
    """Whether `kernel` is another plugin's."""
    return kernel.__module__.partition(".")[0] not in ("vllm", "hk_vllm")


KERNELS: dict[str, type[HKKernel]] = {
    kernel.listed_in: kernel
    for kernel in (
        HKFp8LinearKernel,
        HKFp8BlockLinearKernel,
        HKWeightOnlyFp8LinearKernel,
        HKMxfp8LinearKernel,
        HKMxfp6LinearKernel,
        HKMxfp4LinearKernel,
    )
}
"""HK's class for each of vLLM's lists."""


def counterpart(kernel: Any, weight_only: bool) -> type[HKKernel] | None:
    """HK's class for layers that vLLM gave to `kernel`; None if there is none."""
    for ours in KERNELS.values():
        if isinstance(kernel, ours.__bases__[-1]):
            fp8 = ours is HKFp8LinearKernel
            return HKWeightOnlyFp8LinearKernel if fp8 and weight_only else ours
    return None
