"""Rows of `bench gpu --against stock`: HK, the kernel that it replaces, and their ratio."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hk_backend.lab import tables
from hk_backend.lab.foreign.triton_driver import KernelFinding
from hk_backend.lab.stock.attention import StockAttention
from hk_backend.lab.stock.batches import Batch
from hk_backend.lab.stock.cases import Case
from hk_backend.lab.stock.decode import StockDecode
from hk_backend.lab.stock.kernel import Kernel
from hk_backend.lab.stock.layers import Layer
from hk_backend.lab.stock.linear import StockLinear
from hk_backend.lab.stock.ours import OurAttention, OurLinear
from hk_backend.lab.stock.ours_decode import OurDecode

Stock = StockAttention | StockDecode | StockLinear
RATIO = "HK/stock"


@dataclass(frozen=True)
class Side:
    """One kernel on one case: modelled microseconds, and its error over the largest allowed one."""

    microseconds: float
    error: float


@dataclass
class Compared:
    """A case with one of stock's kernels.

    Args:
        kept: why HK leaves the case to the engine; empty: it does not.
        finding: why stock's result is not held against anything; empty: it is.
        elsewhere: why the engine computes the case with a kernel that is not run here.
        error: why the case could not be computed; empty: it could.
    """

    case: Case
    stock: str
    theirs: Side | None = None
    ours: Side | None = None
    kept: str = ""
    finding: str = ""
    elsewhere: str = ""
    error: str = ""

    @property
    def ratios(self) -> dict[str, float]:
        """HK's speed over stock's, if both results are right; above 1 is a win."""
        if self.ours is None or self.theirs is None or max(self.ours.error, self.theirs.error) > 1:
            return {RATIO: math.nan}
        return {RATIO: self.theirs.microseconds / self.ours.microseconds}

    def as_json(self) -> dict[str, Any]:
        """The row as plain data; rates in TFLOP/s."""
        data: dict[str, Any] = {"case": self.case.name, "stock": self.stock}
        for name, side in (("hk", self.ours), ("stock", self.theirs)):
            if side is not None:
                data[f"{name}_microseconds"] = round(side.microseconds, 2)
                data[f"{name}_tflops"] = round(self.case.of.flops / side.microseconds / 1e6, 1)
                data[f"{name}_error"] = round(side.error, 3) if side.error < math.inf else None
        data |= {"ratio": round(self.ratios[RATIO], 3), "kept": self.kept}
        data |= {"finding": self.finding, "elsewhere": self.elsewhere, "error": self.error}
        return tables.without_nan(data)


@dataclass
class Comparison:
    """The cases with each of stock's kernels that takes them, on one emulated GPU."""

    arch: str
    cases: Sequence[Case]
    stock: Sequence[Stock]
    _known: dict[Any, float] = field(default_factory=dict)
    """Errors and HK's times that several rows share."""

    def run(self, on_case: Callable[[str], object]) -> Iterator[Compared]:
        """Yields the rows, losses first; `on_case` is told what is done next."""
        rows: list[Compared] = []
        for number, case in enumerate(self.cases, 1):
            on_case(f"{number}/{len(self.cases)}  {case.name}")
            rows += [self._row(case, kernel) for kernel in self.stock if _takes(kernel, case)]
        yield from sorted(rows, key=_order)

    def _row(self, case: Case, kernel: Stock) -> Compared:
        row = Compared(case, kernel.name)
        if isinstance(kernel, StockDecode) and isinstance(case.of, Batch):
            row.elsewhere = kernel.elsewhere(case.of)
        if row.elsewhere:
            return row
        ours = self._kernel_of_ours(kernel)
        try:
            row.theirs = self._theirs(row, kernel)
            row.kept = ours.refuses(part_of(case.of))
            if not row.kept:
                row.ours = self._ours(ours, kernel, case)
                if row.ours.error > 1:
                    row.error = f"HK's error is {row.ours.error:.2f} times what bf16 allows"
        except (RuntimeError, ValueError) as error:  # a finding, or a form that is not emulated
            row.error = str(error).splitlines()[0]
        return row

    def _kernel_of_ours(self, stock: Stock) -> Kernel[Any]:
        if isinstance(stock, StockAttention):
            return OurAttention(self.arch, stock.layout)
        if isinstance(stock, StockDecode):
            return OurDecode(self.arch, stock.layout)
        return OurLinear(self.arch)

    def _theirs(self, row: Compared, kernel: Stock) -> Side:
        """Stock's time and error; a kernel with a finding keeps its time, and has no result."""
        took = self._once(kernel.microseconds, kernel, row.case.of)
        try:
            error = self._once(kernel.error, kernel, row.case.small)
        except KernelFinding as finding:
            row.finding, error = str(finding).splitlines()[0], math.inf
        return Side(took, error)

    def _ours(self, ours: Kernel[Any], kernel: Stock, case: Case) -> Side:
        """HK's side. Stock's kernel computes a mixed step's decodes, in a launch of its own."""
        side = self._side(ours, *map(part_of, (case.of, case.small)))
        if not isinstance(case.of, Batch) or case.of.is_decode or case.of.decode is None:
            return side
        decodes = self._side(kernel, case.of.decode, case.small.decode)  # type: ignore[union-attr]
        return Side(side.microseconds + decodes.microseconds, max(side.error, decodes.error))

    def _side(self, kernel: Kernel[Any], of: Any, small: Any) -> Side:
        return Side(
            self._once(kernel.microseconds, kernel, of), self._once(kernel.error, kernel, small)
        )

    def _once(self, compute: Callable[[Any], float], kernel: Kernel[Any], of: Any) -> float:
        key = (compute.__name__, kernel, of)
        if key not in self._known:
            self._known[key] = compute(of)
        return self._known[key]


def part_of(case: Batch | Layer) -> Batch | Layer:
    """The part of a case that HK computes in one launch: all but the decodes of a mixed step."""
    return case.prefill if isinstance(case, Batch) and not case.is_decode else case


def _takes(kernel: Stock, case: Case) -> bool:
    """Whether a kernel of stock computes this kind of case, and this one."""
    if isinstance(case.of, Layer):
        return isinstance(kernel, StockLinear) and not kernel.refuses(case.of)
    kind = StockDecode if case.of.is_decode else StockAttention
    return isinstance(kernel, kind) and not kernel.refuses(case.of)


def _order(row: Compared) -> tuple[bool, float]:
    ratio = row.ratios[RATIO]
    return math.isnan(ratio), 0.0 if math.isnan(ratio) else ratio


HEADINGS = ("case", "stock", "HK us", "stock us", "HK TF", "stock TF", RATIO, "errors")
NARROW = tables.Narrow(grouped=1, short={RATIO: "ratio", "errors": ""})


def names(row: Compared) -> list[str]:
    return [row.case.name, row.stock]


def figures(row: Compared) -> list[str]:
    sides = (row.ours, row.theirs)
    if row.elsewhere:
        return ["", "", "", "", f"not run: {row.elsewhere}"]
    if row.kept:
        return ["", _us(row.theirs), "", _rate(row, row.theirs), f"left to stock: {row.kept}"]
    errors = ", ".join(f"{side.error:.2f}" for side in sides if side)
    if row.finding:
        errors = f"stock has a finding: {row.finding.split(';')[0]}"
    return [
        *map(_us, sides),
        *(_rate(row, side) for side in sides),
        tables.ratio(row.ratios[RATIO]),
        errors,
    ]


def _us(side: Side | None) -> str:
    return f"{side.microseconds:.4g}" if side else ""


def _rate(row: Compared, side: Side | None) -> str:
    return tables.rate(row.case.of.flops / side.microseconds / 1e6) if side else ""


TITLE = "HK and the kernels that it replaces, both executed and modelled, launches apart"
TABLE = tables.Comparison(TITLE, HEADINGS, NARROW, names, figures, (RATIO,), RATIO, "stock")
