"""Small launches that several tests of the model read, traced once."""

from __future__ import annotations

import functools

from hk_backend.kernels.catalogue import catalogue
from hk_backend.kernels.entry import KernelEntry
from hk_backend.timing import model, shapes

PACKED = "attention_prefill_bf16_d64_packed"
PAGED = "attention_prefill_bf16_d64_paged"
GEMM = "gemm_bf16"


def entry(name: str) -> KernelEntry:
    return catalogue("gfx950").kernel(name)


@functools.cache
def traced(kernel: str, shape: str) -> model.Traced:
    return model.trace(shapes.parse(entry(kernel), shape).launch())
