"""Small launches that several tests of the timing model read, traced and modelled once."""

from __future__ import annotations

import functools

from hk_backend.kernels.catalogue import catalogue
from hk_backend.kernels.entry import KernelEntry
from hk_backend.lab.timing import model, shapes
from hk_backend.lab.timing.launch import Traced, trace
from hk_backend.lab.timing.model import Modelled
from hk_backend.lab.timing.report import Report, collect

PACKED = "attention_prefill_bf16_d128_packed"
PAGED = "attention_prefill_bf16_d128_paged"
WINDOWED = "attention_prefill_bf16_d128_paged_window"
GEMM = "gemm_bf16_256x256"
QUANTIZE = "quantize_fp8_token_bf16"
MANY = "heads=64/8,tokens=1024,batch=4,causal"


def entry(name: str) -> KernelEntry:
    return catalogue("gfx950").kernel(name)


@functools.cache
def traced(kernel: str, shape: str) -> Traced:
    return trace(shapes.parse(entry(kernel), shape).launch())


@functools.cache
def modelled(kernel: str, shape: str, **changes: float) -> Modelled:
    """The launch's time by the model, with `changes` of its parameters."""
    return model.time(traced(kernel, shape), changes)


@functools.cache
def report(kernel: str, shape: str) -> Report:
    """The launch's report, without sensitivity."""
    return collect(shapes.parse(entry(kernel), shape), {}, sensitivity=False)
