"""`hk-backend kernels`: what was built, and what the analysis found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from hk_backend.kernels.catalogue import arches, catalogue
from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.toolchain.figures import ModelledLaunch


def collect(arch: str | None = None) -> list[KernelEntry]:
    """The kernels of an arch, or of every arch. Raises `CodeObjectError`."""
    return [entry for one in ([arch] if arch else arches()) for entry in catalogue(one).kernels]


def as_json(entry: KernelEntry) -> dict[str, Any]:
    """Plain data; sizes in bytes, registers per lane, `block` in threads, the analysis as `Figures`
    has it (shares of 1, clocks per iteration), modelled launches by shape."""
    figures = entry.figures
    return {
        "name": entry.name,
        "arch": entry.arch,
        "operator": entry.operator,
        "facts": dict(entry.facts),
        "vgpr": entry.vgpr,
        "agpr": entry.agpr,
        "sgpr": entry.sgpr,
        "spills": entry.spills,
        "scratch": entry.scratch,
        "lds": entry.static_lds + entry.dynamic_lds,
        **asdict(figures),
        "modelled": {shape: asdict(found) for shape, found in entry.modelled.items()},
        "block": entry.block,
        "grid": entry.grid_formula,
        "compiler": entry.compiler,
        "code_object": str(entry.path),
        "symbol": entry.symbol,
        "args": [
            {"name": field.name, "type": field.type, "offset": field.offset}
            for field in entry.arguments.fields
        ],
    }


CAPTION = (
    "V, A, S: vector, accumulation and scalar registers; LDS: KiB; useful: matrix work, as a "
    "share of the steady loop's clocks, one wave by llvm-mca; "
    "bank: LDS phases taken over needed; faults: spills, scratch, waterfall loops, "
    "vmcnt(0) in the loop"
)
RATE = {"TFLOP/s": "TF", "TB/s": "TB/s"}
"""The column of a launch's rate, by its unit."""
COLUMNS = ("V", "A", "S", "LDS", "waves", "useful", "rate", "bank", "faults")


def tables(entries: Sequence[KernelEntry]) -> list[Table]:
    """One for each operator, one line for each kernel; they fit 80 columns."""
    families = dict.fromkeys((entry.arch, entry.operator) for entry in entries)
    return [
        _table(arch, name, [e for e in entries if (e.arch, e.operator) == (arch, name)])
        for arch, name in families
    ]


def _table(arch: str, operator: str, entries: Sequence[KernelEntry]) -> Table:
    made = Table(box=None, padding=(0, 1, 0, 0), title=arch, title_justify="left")
    made.add_column(f"{operator}_", no_wrap=True)
    units = {RATE[launch.unit] for entry in entries for launch in entry.modelled.values()}
    for name in COLUMNS:
        made.add_column(" ".join(units) or "rate" if name == "rate" else name, justify="right")
    for entry in entries:
        figures = entry.figures
        made.add_row(
            entry.name.removeprefix(f"{operator}_"),
            str(entry.vgpr),
            str(entry.agpr),
            str(entry.sgpr),
            f"{(entry.static_lds + entry.dynamic_lds) / 1024:.3g}",
            str(figures.waves_per_simd),
            _share(figures.useful_mfma_share),
            _rate(entry),
            "-" if figures.bank_conflict_factor is None else f"{figures.bank_conflict_factor:.2f}",
            _faults(entry),
        )
    return made


def caption(entries: Sequence[KernelEntry]) -> str:
    """What the columns of the tables are."""
    modelled = {
        (entry.operator, shape): launch
        for entry in entries
        for shape, launch in list(entry.modelled.items())[:1]
    }
    said = [
        f"; {RATE[launch.unit]}: modelled {launch.unit} of {operator} on {shape}, {_error(launch)}"
        for (operator, shape), launch in modelled.items()
    ]
    return CAPTION + "".join(said)


def _error(launch: ModelledLaunch) -> str:
    return "error unknown" if launch.error_rms is None else f"error {launch.error_rms:.0%} rms"


def _rate(entry: KernelEntry) -> str:
    """On the first modelled shape."""
    return next((launch.rate for launch in entry.modelled.values()), "-")


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _faults(entry: KernelEntry) -> str:
    found = {
        "spills": entry.spills,
        "scratch bytes": entry.scratch,
        "waterfall loops": entry.figures.waterfall_loops,
        "vmcnt(0)": entry.figures.vmcnt0_in_loop,
    }
    return ", ".join(f"{count} {name}" for name, count in found.items() if count) or "none"
