"""`hk-backend kernels`: lists the GPU kernels of the package, with the analysis of their code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from hk_backend.kernels.catalogue import arches, catalogue
from hk_backend.kernels.entry import CodeObjectError, KernelEntry
from hk_backend.lab.toolchain.modelled import ModelledLaunch, modelled_figures
from hk_backend.terminal import errors
from hk_backend.terminal.output import JsonFlag, print_json, progress

Name = Annotated[
    str, typer.Argument(help="Only kernels with this in their names, as in gemm_bf16.")
]
Arch = Annotated[str | None, typer.Option(help="For example gfx950; every arch by default.")]


def kernels(name: Name = "", arch: Arch = None, as_json: JsonFlag = False) -> None:
    """List the GPU kernels in this package, with the analysis of their code."""
    with errors.in_one_line(progress, CodeObjectError):
        entries = [entry for entry in collect(arch) if name in entry.name]
    if not entries:
        none = f"no kernel has {name!r} in its name; hk-backend kernels lists all" if name else ""
        errors.say(progress, none or "no kernels: `make kernels` builds them")
        raise typer.Exit(1)
    if as_json:
        return print_json([_plain(entry) for entry in entries])
    console = Console(width=1000)  # wide enough for every name: a cut one cannot be copied
    console.print(legend(), highlight=False, markup=False, soft_wrap=True)
    for table in tables(entries):
        console.print()
        console.print(table, soft_wrap=True)
    return None


def collect(arch: str | None = None) -> list[KernelEntry]:
    """The kernels of an arch, or of every arch. Raises `CodeObjectError`."""
    return [entry for one in ([arch] if arch else arches()) for entry in catalogue(one).kernels]


def _plain(entry: KernelEntry) -> dict[str, Any]:
    """Plain data of a kernel. Sizes are in bytes, registers per lane, `block` in threads. The
    analysis has the names and units of `Figures`; modelled launches are by shape."""
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
        "modelled": {shape: asdict(found) for shape, found in modelled_figures(entry).items()},
        "block": entry.block,
        "grid": entry.grid,
        "compiler": entry.compiler,
        "code_object": str(entry.path),
        "symbol": entry.symbol,
        "args": [
            {"name": field.name, "type": field.type, "offset": field.offset}
            for field in entry.arguments.fields
        ],
    }


LEGEND = {
    "V, A, S": "vector, accumulation and scalar registers of a lane",
    "LDS": "KiB of a workgroup",
    "waves": "that fit on a SIMD",
    "useful": "matrix work, as a share of the steady loop's clocks; one wave, by llvm-mca",
    "TFLOP/s, TB/s": "of the launch that is named above the table, by the timing model",
    "bank": "LDS phases that the loop takes, over those that it needs",
    "faults": "spills, scratch, waterfall loops, vmcnt(0) in the loop",
}
"""The meaning of the tables' columns."""
COLUMNS = ("V", "A", "S", "LDS", "waves", "useful", "rate", "bank", "faults")


def legend() -> str:
    """One line of text for each column."""
    return "\n".join(f"{column:14} {meaning}" for column, meaning in LEGEND.items())


def tables(entries: Sequence[KernelEntry]) -> list[Table]:
    """One table for each operator and modelled launch, with one line for each kernel."""
    groups: dict[tuple[str, str, str], list[KernelEntry]] = {}
    for entry in entries:
        launch = next(iter(modelled_figures(entry)), "")
        groups.setdefault((entry.arch, entry.operator, launch), []).append(entry)
    return [_table(_title(group), group) for group in groups.values()]


def _title(group: Sequence[KernelEntry]) -> str:
    """Title of a table: what its kernels compute, and the launch that their rates are for."""
    first = group[0]
    heading = f"{first.arch} {first.operator}, {len(group)} kernels"
    for shape, launch in list(modelled_figures(first).items())[:1]:
        heading += f"; {launch.unit} modelled on {shape}, {_error(launch)}"
    return heading


def _table(title: str, entries: Sequence[KernelEntry]) -> Table:
    made = Table(box=None, padding=(0, 1, 0, 0), title=title, title_justify="left")
    made.add_column("kernel", no_wrap=True)
    units = {launch.unit for launch in list(modelled_figures(entries[0]).values())[:1]}
    for name in COLUMNS:
        heading = " ".join(units) or "rate" if name == "rate" else name
        made.add_column(heading, justify="right", no_wrap=True)
    for entry in entries:
        figures = entry.figures
        made.add_row(
            entry.name,
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


def _error(launch: ModelledLaunch) -> str:
    return "error unknown" if launch.error_rms is None else f"error {launch.error_rms:.0%} rms"


def _rate(entry: KernelEntry) -> str:
    """Rate of the kernel on its first modelled shape."""
    return next((launch.rate for launch in modelled_figures(entry).values()), "-")


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
