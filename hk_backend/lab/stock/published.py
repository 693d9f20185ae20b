"""Published rates of Triton kernels, beside what the clock says of the same kernels.

The clock was not tuned on any of them. A figure counts where kernel, configuration, shape and GPU
are known.

Assumptions: the source's best of its programs is the one whose configurations are modelled. Its
tutorial attention has no groups of heads; its tutorial product is slower by the clock at 4096 and
8192, and its third product has the same tiles from 4096 on. The grouped product takes its default
tiles: its planner offers none that are 32 deep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from hk_backend.lab import tables
from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock.published_launches import (
    Attention,
    GroupedProduct,
    Problem,
    Product,
    microseconds,
)

ARCH, GPU = "gfx950", "MI355X"
"""Arch and name of the GPU of every figure."""
HIPKITTENS = "HipKittens' repository, analysis/baselines (November 2025)"
PRIMUS = "Primus-Turbo, pull request 284 (April 2026)"
SIZES = (1024, 2048, 4096, 8192, 16384)
WHICH = "best of three programs, and the clock finds another one than this faster"
VERSIONS = ("3.9", "3.6")
"""Versions of Triton that kernels are compiled with here: beside vLLM, and beside SGLang."""
SAME = 0.02
"""Largest relative change of a modelled rate that another order of allocations may bring."""
MARKS = (
    "<!-- clock on Triton code: written by `hk-backend bench gpu --against stock --into` -->\n",
    "<!-- end of clock on Triton code -->\n",
)


class Figure(NamedTuple):
    """One published rate in TFLOP/s, and the modelled ones, by Triton's version.

    `unknown`: what is not known of the figure, which then does not count; empty: it counts.
    """

    kernel: str
    shape: str
    of: Problem
    published: float
    modelled: Mapping[str, float]
    source: str
    unknown: str = ""

    def error(self, version: str) -> float:
        """Relative error of the modelled rate with a version of Triton."""
        return self.modelled[version] / self.published - 1


def _figures(
    kernel: str,
    source: str,
    of: Mapping[str, Problem],
    published: Sequence[float],
    *modelled: Sequence[float],
) -> list[Figure]:
    """The figures of a kernel; `of`: its problems by shape; `modelled`: in order of `VERSIONS`."""
    by_version = [dict(zip(VERSIONS, rates, strict=True)) for rates in zip(*modelled, strict=True)]
    return [
        Figure(kernel, shape, problem, rate, now, source)
        for (shape, problem), rate, now in zip(of.items(), published, by_version, strict=True)
    ]


def _attention(
    head_size: int, causal: bool, published: Sequence[float], *modelled: Sequence[float]
) -> list[Figure]:
    name = f"attention d{head_size} {'causal' if causal else 'full'}"
    of = {f"N={n}": Attention(head_size, causal, n) for n in SIZES}
    return _figures(name, HIPKITTENS, of, published, *modelled)


def _products(published: Sequence[float], *modelled: Sequence[float]) -> list[Figure]:
    of = {f"M=N=K={n}": Product(n) for n in SIZES}
    found = _figures("GEMM fp16", HIPKITTENS, of, published, *modelled)
    return [figure._replace(unknown=WHICH) for figure in found[:2]] + found[2:]


def _grouped(published: Sequence[float], *modelled: Sequence[float]) -> list[Figure]:
    shapes = [(m, n, k) for n, k in ((4096, 7168), (7168, 2048)) for m in (2048, 4096)]
    of = {f"16 x {m}x{n}x{k}": GroupedProduct(16, m, n, k) for m, n, k in shapes}
    return _figures("grouped GEMM bf16", PRIMUS, of, published, *modelled)


FIGURES: Sequence[Figure] = (
    *_attention(
        128, False, (827.5, 905.8, 967.7, 993.5, 989.7),
        (920.6, 950.2, 986.5, 1002.1, 1010.5),
        (954, 980.2, 1001.1, 1019.9, 1028.5),
    ),
    *_attention(
        128, True, (156.9, 248.9, 367.8, 593.6, 793.8),
        (428.1, 590.8, 719.7, 803.8, 859.3),
        (488, 655.3, 799.9, 905.5, 966.5),
    ),
    *_attention(
        64, False, (735.5, 802.4, 857.7, 865.1, 861.2),
        (753.6, 808.9, 842.3, 844.1, 854.7),
        (754.7, 792.2, 823.4, 824.2, 835.4),
    ),
    *_attention(
        64, True, (355.1, 450.2, 491.6, 655.8, 745.6),
        (390.3, 535, 662.6, 751.7, 804.6),
        (365.8, 510.3, 636.7, 722.7, 773.3),
    ),
    *_products(
        (59.4, 270.5, 934.4, 1090.5, 1086.3), (61.3, 279.2, 996.4, 1050.3, 1063.3),
        (61.3, 279.2, 1076.9, 1141.8, 1158.1),
    ),
    *_grouped(
        (1271, 1292, 1092, 1139), (1151.3, 1151.2, 1018, 1016.4),
        (1458.7, 1460.6, 1229.8, 1231.4),
    ),
)  # fmt: skip
"""Attention: 16 requests, 64/8 heads; the source counts half of the work if it is causal."""
COUNTED = tuple(figure for figure in FIGURES if not figure.unknown)


def error_of(figures: Sequence[Figure], version: str = VERSIONS[0]) -> str:
    """The range and the mean of figures' errors, in words."""
    errors = [figure.error(version) for figure in figures]
    mean = sum(map(abs, errors)) / len(errors)
    return f"from {min(errors):+.0%} to {max(errors):+.0%}, mean absolute {mean:.0%}"


def statement(arch: str) -> str:
    """The error of the clock on Triton code, to stand beside modelled figures of an arch."""
    if arch != ARCH:
        return f"error of the clock on Triton code: unknown on {arch}, no published figure counts"
    by_version = [f"{error_of(COUNTED, each)} (Triton {each})" for each in VERSIONS]
    return (
        f"error of the clock on Triton code: {len(COUNTED)} published figures, "
        f"{'; '.join(by_version)}"
    )


def text() -> str:
    """Markdown: the error, and one line for each kernel."""
    lines: dict[tuple[str, str], list[Figure]] = {}
    for figure in FIGURES:
        lines.setdefault((figure.kernel, figure.unknown), []).append(figure)
    first = statement(ARCH)
    headings = ["kernel", "GPU", "shape", "published TFLOP/s"]
    headings += [f"modelled, Triton {version}: rate, ratio" for version in VERSIONS] + ["source"]
    table = tables.markdown(headings, (_cells(name, line) for name, line in lines.items()))
    return f"{first[0].upper()}{first[1:]}.\n\n{table}".strip()


def _cells(name: tuple[str, str], figures: Sequence[Figure]) -> list[str]:
    kernel, unknown = name
    return [
        kernel,
        GPU,
        ", ".join(figure.shape for figure in figures),
        ", ".join(tables.rate(figure.published) for figure in figures),
        *(", ".join(_modelled(figure, version) for figure in figures) for version in VERSIONS),
        f"does not count: {unknown}" if unknown else figures[0].source,
    ]


def _modelled(figure: Figure, version: str) -> str:
    return f"{tables.rate(figure.modelled[version])} {1 + figure.error(version):.2f}"


@dataclass(frozen=True)
class Remodelled:
    """A figure with the rate that the clock gives it now."""

    figure: Figure
    rate: float
    version: str

    @property
    def error(self) -> str:
        """Says that the figure's modelled rate is not the clock's any more; empty: it is."""
        stored = self.figure.modelled.get(self.version)
        if stored is None:
            return f"no rates of Triton {self.version} are stored"
        if abs(self.rate / stored - 1) < SAME:
            return ""
        return f"{self.figure.kernel} {self.figure.shape}: {stored} is stored, not {self.rate:.1f}"

    def as_json(self) -> dict[str, Any]:
        figure = self.figure
        data = {"kernel": figure.kernel, "gpu": GPU, "shape": figure.shape}
        rates = {"published_tflops": figure.published, "modelled_tflops": round(self.rate, 1)}
        return {
            **data,
            **rates,
            "triton": self.version,
            "counts": not figure.unknown,
            "source": figure.source,
        }


def line_of(row: Remodelled) -> str:
    """One line for the terminal."""
    figure, counts = row.figure, "" if not row.figure.unknown else "; does not count"
    rates = f"published {figure.published:.4g}, modelled {row.rate:.4g} TFLOP/s"
    return f"{figure.kernel}, {figure.shape}: {rates}{counts}"


@dataclass(frozen=True)
class Sweep:
    """All figures, modelled again on an emulated MI355X."""

    gpu: TritonGpu

    def run(self, on_case: Callable[[str], object]) -> Iterator[Remodelled]:
        """Yields the figures; `on_case` is told what is done next."""
        version = triton_version()
        for number, figure in enumerate(FIGURES, 1):
            on_case(f"{number}/{len(FIGURES)}  {figure.kernel} {figure.shape}")
            yield Remodelled(figure, rate(self.gpu, figure.of), version)


def triton_version() -> str:
    """The installed Triton's version without its last part."""
    return str(import_module("triton").__version__).rpartition(".")[0]  # fbtriton's, too


def rate(gpu: TritonGpu, of: Problem) -> float:
    """Modelled TFLOP/s of a problem."""
    return of.flops / microseconds(gpu, of) / 1e6
