"""`python -m bench_serving kernels --modelled`: compares modelled and published GPU kernels.

HK's kernels are timed by the timing model; others' times are published figures.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from bench_serving.published import PANELS, Panel
from hk_backend.kernels.catalogue import Catalogue, Family, NoKernel
from hk_backend.kernels.entry import Fact
from hk_backend.kernels.masks import NO_MASK
from hk_backend.lab.timing import calibration, family, model
from hk_backend.lab.timing.busiest import Busiest, busiest
from hk_backend.lab.timing.launch import trace

ARCH = "gfx950"
KEYS = ("packed", "paged", "split", "tokens")
"""Layouts of keys and values: packed, or in a cache; `paged`: pages of 16, `tokens`: of one."""
PLAIN: dict[str, Fact] = {"mask": NO_MASK, "padded": False}
VARIANTS: dict[str, dict[str, dict[str, Fact]]] = {
    "attention_prefill": {
        **{keys: {"keys": keys, "stored": "bf16", **PLAIN} for keys in KEYS},
        **{
            f"{keys} fp8": {"keys": keys, "stored": "e4m3", **PLAIN}
            for keys in KEYS
            if keys != "packed"
        },
    },
    "gemm": {"": {}},
}
"""Variants of each operator's kernels, with the facts that select each variant's kernel."""
BASE = "paged"
"""The variant that other bf16 variants are compared with: pages of 16 tokens."""


class CaseError(ValueError):
    """The chosen words select no case."""


@dataclass(frozen=True)
class ModelledCase:
    """One shape of a panel, with the HK kernels that compute it; the launch takes one of them."""

    panel: Panel
    size: int
    variant: str
    kernels: Family

    @property
    def name(self) -> str:
        return f"{self.panel.name} n{self.size} {self.variant}".strip()

    @property
    def line(self) -> str:
        """Name of HK's line in tables and plots."""
        return f"HK {self.variant}".strip()

    @property
    def base(self) -> str:
        """The variant that this one is compared with; for FP8, the same cache in bf16."""
        keys, _, fp8 = self.variant.partition(" ")
        return keys if fp8 else BASE

    @property
    def peers(self) -> dict[str, int]:
        """Published TFLOP/s at this size, by the name of the kernel."""
        return {name: rates[self._place] for name, rates in self.panel.rates.items()}

    @property
    def hipkittens_modelled(self) -> int | None:
        """TFLOP/s of HipKittens' kernel by the same model; None: not modelled."""
        rates = self.panel.hipkittens_modelled
        return rates[self._place] if rates else None

    @property
    def _place(self) -> int:
        return list(self.panel.shapes).index(self.size)


@dataclass(frozen=True)
class ModelledKernel:
    """A case with the modelled figures of the kernel that serves it, or with its error."""

    case: ModelledCase
    kernel: str = ""
    tflops: float = 0.0
    microseconds: float = 0.0
    busiest: Busiest | None = None
    error: str = ""

    @property
    def model_error(self) -> float | None:
        """Relative root-mean-square error of the timing model; None: unknown."""
        return calibration.error_of(self.case.panel.operator)

    def label_of(self, line: str) -> str:
        """Label of a modelled line in tables and plots, with the model's error."""
        error = self.model_error
        return f"{line}, modelled" + (", error unknown" if error is None else f" ±{error:.0%}")

    @property
    def ratio(self) -> float:
        """HK's modelled rate over that of the best published kernel."""
        return self.tflops / max(self.case.peers.values())

    @property
    def ratio_modelled(self) -> float | None:
        """HK's rate over HipKittens' rate, both modelled; None: HipKittens' is not."""
        other = self.case.hipkittens_modelled
        return self.tflops / other if other else None

    def as_json(self) -> dict[str, Any]:
        case = self.case
        data = {"case": case.name, "n": case.size}
        if self.error or self.busiest is None:
            return {**data, "error": self.error}
        return {
            **data,
            "kernel": self.kernel,
            "modelled_tflops": round(self.tflops, 1),
            "modelled_microseconds": round(self.microseconds, 2),
            "modelled_error_rms": self.model_error,
            "busiest": self.busiest.name,
            "busiest_share": round(self.busiest.share, 3),
            "published_tflops": case.peers,
            "published_by": case.panel.source,
            "best_peer": max(case.peers, key=lambda name: case.peers[name]),
            "ratio_to_best_peer": round(self.ratio, 3),
            "hipkittens_modelled_tflops": case.hipkittens_modelled,
            "ratio_to_hipkittens_modelled": self.ratio_modelled and round(self.ratio_modelled, 3),
        }


def cases(kernels: Catalogue, chosen: str = "") -> list[ModelledCase]:
    """Every published shape with each variant of HK's kernels; or those that `chosen` selects.

    A part of `chosen` between commas selects the cases whose names contain all of its words:
    `d128 causal,gemm n4096` selects all of d128 causal, and one GEMM. Raises `CaseError` for a part
    that selects nothing.
    """
    every = [
        ModelledCase(panel, size, variant, _alternatives(kernels, panel, more))
        for panel in PANELS
        for size in panel.shapes
        for variant, more in VARIANTS[panel.operator].items()
    ]
    wanted = [set(words.split()) for words in chosen.split(",")]
    for words in wanted:
        if not any(words <= set(case.name.split()) for case in every):
            valid = dict.fromkeys(word for case in every for word in case.name.split())
            raise CaseError(f"{' '.join(sorted(words))!r} is no case; words: {', '.join(valid)}")
    return [case for case in every if any(words <= set(case.name.split()) for words in wanted)]


def _alternatives(kernels: Catalogue, panel: Panel, more: Mapping[str, Fact]) -> Family:
    found = kernels.alternatives(panel.operator, **panel.facts, **more)
    if isinstance(found, NoKernel):
        raise CaseError(f"{panel.name}: no kernel with {found.fact} {found.value}")
    return found


def run(
    chosen: Sequence[ModelledCase], workers: int, tell: Callable[[str], object]
) -> Iterator[ModelledKernel]:
    """Yields one row for each case, failed ones included; `workers` threads model them."""
    with ThreadPoolExecutor(workers) as pool:
        try:
            for done, row in enumerate(pool.map(_row, chosen), 1):
                figure = f"failed: {row.error}" if row.error else f"{row.tflops:.0f} TFLOP/s"
                tell(f"{done}/{len(chosen)} {row.case.name}: {figure}")
                yield row
        finally:
            pool.shutdown(cancel_futures=True)


def _row(case: ModelledCase) -> ModelledKernel:
    shape = case.panel.shapes[case.size]
    try:
        entry, launch = family.serving(case.kernels, shape, compute_units())
        found = model.time(trace(launch, threads=1))
    except (RuntimeError, ValueError) as error:
        return ModelledKernel(case, error=str(error))
    return ModelledKernel(
        case, entry.name, found.flops_per_second / 1e12, found.microseconds, busiest(found)
    )


@functools.cache
def compute_units() -> int:
    """Number of CUs of the modelled GPU. Raises `ImportError` without the emulator."""
    from hk_backend import _emulator

    return int(_emulator.TimingParameters(ARCH)["compute_units"])
