"""Published times of other kernels for linear layers on an MI355X, for comparison.

`hk-backend bench linear --device` shows them. None was measured by us, and none decides anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

AITER_FP8 = "its tuned table of FP8 layers of Llama-70B"
AITER_BF16 = "its tuned table of BF16 layers"
AITER_BLOCKS = "its published peak with 128x128 blocks"
SQUARES = "HipKittens' tables of M = N = K (November 2025)"
UNSCALED = f"{SQUARES}, FP8 without scales"
FLYDSL_ROWS = "its pull request 714 (September 2026)"
FLYDSL_MXFP4 = "pull request 990 of FlyDSL (September 2026)"
PRIMUS_MXFP4 = "pull request 514 of Primus-Turbo (September 2026)"
PRIMUS_GPT_OSS = "pull request 487 of Primus-Turbo (September 2026)"
FLYDSL_W4A6 = "its pull request 780 (September 2026)"
PYTORCH_MXFP8 = "pull request 194506 of PyTorch (September 2026)"
OPUS_BLOCKS = "opus_gemm in carlushuang/gcnasm (September 2026), float32 output"


@dataclass(frozen=True)
class Stock:
    """The published times of one kernel for a weight `[n, k]`.

    `format`: a key of `gemm_operands.LAYERS`. `kernel`: name of the kernel's library. `source`: who
    published the times. `microseconds`, `tflops`: figures by the number of rows.
    """

    format: str
    n: int
    k: int
    kernel: str
    source: str
    microseconds: Mapping[int, float] = field(default_factory=dict)
    tflops: Mapping[int, float] = field(default_factory=dict)

    @property
    def times(self) -> Mapping[int, float]:
        """Microseconds, by the number of rows."""
        by_rate = {m: 2e-6 * m * self.n * self.k / rate for m, rate in self.tflops.items()}
        return {**self.microseconds, **by_rate}


def _llama_70b(n: int, k: int, one: float, sixteen: float, *tflops: int) -> Stock:
    """A weight of Llama 70B; `one`, `sixteen`: microseconds for that many rows."""
    rates = dict(zip((256, 1024, 4096, 8192), tflops, strict=True))
    return Stock("fp8_channel", n, k, "AITER", AITER_FP8, {1: one, 16: sixteen}, rates)


def _squares(format: str, kernel: str, source: str, *tflops: int) -> tuple[Stock, ...]:
    sizes = (1024, 2048, 4096, 8192, 16384)
    return tuple(
        Stock(format, size, size, kernel, source, tflops={size: rate})
        for size, rate in zip(sizes, tflops, strict=True)
    )


def _mxfp4(
    source: str, m: int, n: int, k: int, *, flydsl: float, aiter: float
) -> tuple[Stock, Stock]:
    """The rates of two kernels for M rows of mxfp4 on both sides."""
    return (
        Stock("mxfp4", n, k, "FlyDSL", source, tflops={m: flydsl}),
        Stock("mxfp4", n, k, "AITER", source, tflops={m: aiter}),
    )


def _few_rows(*tflops: int) -> Mapping[int, float]:
    return dict(zip((32, 256, 1024, 2048), tflops, strict=True))


BF16_SQUARES: Mapping[str, tuple[int, ...]] = {
    "hipBLASLt": (168, 640, 1433, 1575, 1579),
    "AITER": (53, 329, 1114, 1591, 1564),
}
"""TFLOP/s at M = N = K = 1024, 2048, 4096, 8192, 16384, by kernel."""

STOCK: tuple[Stock, ...] = (
    _llama_70b(10240, 8192, 17.4, 18.1, 1091, 1805, 2451, 2575),
    _llama_70b(8192, 8192, 15.2, 15.5, 1075, 1968, 2405, 2526),
    _llama_70b(57344, 8192, 78.0, 78.3, 1795, 2291, 2589, 2639),
    _llama_70b(8192, 28672, 45.2, 43.6, 1234, 2383, 2992, 2972),
    Stock("bf16", 10240, 8192, "AITER", AITER_BF16, {1: 33.6}, {256: 666}),
    *(each for name, of in BF16_SQUARES.items() for each in _squares("bf16", name, SQUARES, *of)),
    *_squares("fp8_tensor", "hipBLASLt", UNSCALED, 205, 1173, 2749, 3233, 3293),
    *_squares("fp8_tensor", "HipKittens", UNSCALED, 270, 1054, 2741, 3327, 3378),
    Stock("fp8_channel", 8192, 8192, "FlyDSL", FLYDSL_ROWS, tflops={8192: 2907}),
    Stock("fp8_channel", 16384, 16384, "FlyDSL", FLYDSL_ROWS, tflops={16384: 3441}),
    Stock("fp8_block", 8192, 8192, "AITER", AITER_BLOCKS, tflops={8192: 2340}),
    Stock("fp8_block", 4096, 4096, "OPUS", OPUS_BLOCKS, tflops={4096: 2238}),
    Stock("fp8_block", 8192, 8192, "OPUS", OPUS_BLOCKS, tflops={8192: 2710}),
    *_mxfp4(FLYDSL_MXFP4, 8192, 8192, 8192, flydsl=5033, aiter=5096),
    *_mxfp4(FLYDSL_MXFP4, 8192, 8192, 16384, flydsl=5443, aiter=5520),
    *_mxfp4(FLYDSL_MXFP4, 16384, 16384, 16384, flydsl=5495, aiter=5590),
    *_mxfp4(PRIMUS_MXFP4, 32768, 6144, 4096, flydsl=4890, aiter=4454),
    *_mxfp4(PRIMUS_MXFP4, 32768, 4096, 4096, flydsl=4962, aiter=4495),
    *_mxfp4(PRIMUS_MXFP4, 32768, 28672, 4096, flydsl=4867, aiter=4490),
    *_mxfp4(PRIMUS_MXFP4, 32768, 4096, 14336, flydsl=5356, aiter=5254),
    *_mxfp4(PRIMUS_GPT_OSS, 32768, 5120, 2880, flydsl=4282, aiter=3195),
    Stock("mxfp4", 8192, 8192, "FlyDSL", FLYDSL_W4A6, tflops=_few_rows(220, 1333, 2737, 3591)),
    Stock(
        "mxfp4_mxfp6_e2m3",
        *(8192, 8192, "FlyDSL", FLYDSL_W4A6),
        tflops=_few_rows(204, 856, 1643, 2661),
    ),
    Stock("mxfp8", 4096, 4096, "a Triton kernel", PYTORCH_MXFP8, tflops={32: 65}),
    Stock("mxfp8", 28672, 4096, "a Triton kernel", PYTORCH_MXFP8, tflops={32: 254}),
)


class Known(NamedTuple):
    """A published time, with the kernel and the source."""

    microseconds: float
    source: str


def known(format: str, n: int, k: int) -> dict[int, Known]:
    """The fastest published times for a weight, by the number of rows."""
    found: dict[int, Known] = {}
    for stock in STOCK:
        if (stock.format, stock.n, stock.k) == (format, n, k):
            for m, time in stock.times.items():
                this = Known(time, f"{stock.kernel}, {stock.source}")
                found[m] = min(found.get(m, this), this)
    return found
