"""Tables that `hk-backend time` prints for people, in 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hk_backend.lab.tables import plain_table
from hk_backend.lab.timing.bound import Bound, is_matrix_bound
from hk_backend.lab.timing.busiest import units
from hk_backend.lab.timing.calibration import statement
from hk_backend.lab.timing.model import Modelled
from hk_backend.lab.timing.report import Report, shares
from hk_backend.lab.timing.sensitivity import LEAST, Effect, Parameter
from hk_backend.lab.timing.workgroup import Clocks, Workgroup

LINES = 12
"""Largest number of source lines that are listed."""
SHOWN = 0.005
"""Smallest share of a wave's clocks that is listed."""
BAR = 30
"""Length of the bar of a unit that is always busy, in characters."""

LAUNCH = 0.05
"""Smallest share of the time for which the cost of launching is printed."""

UNITS = {
    "matrix": "the matrix unit",
    "vector": "the vector ALU",
    "lds": "the LDS",
    "scalar": "the scalar unit",
    "memory path": "the memory path",
    "l2": "the L2",
    "fabric": "the Infinity Cache",
    "hbm": "HBM",
}
ISSUE = "issue"
WAIT = "wait"
WHAT = {
    "vector memory": "loads, copies to the LDS (s_waitcnt vmcnt)",
    "lds": "LDS, scalar loads (s_waitcnt lgkmcnt)",
    "barrier": "for the workgroup's other waves",
    "matrix result": "an operand is a matrix result",
    "matrix busy": "the matrix unit works",
    "vector busy": "the vector ALU's port is taken",
    "lds busy": "the LDS's queue is full",
    "memory busy": "the memory path's queue is full",
    "other wave": "it took the unit in this slot",
    "itself": "s_nop, s_sleep, jumps",
    "control": "waits, barriers, priorities, s_nop",
}
"""Explanation of each stall, and of instructions that `control` issues."""


def print_report(
    console: Console, report: Report, pictures: Sequence[Path], timeline: Path | None
) -> None:
    """Print the time, what bounds it, where the clocks go, and the names of files that show it."""
    _print_figures(console, report)
    print_clocks(console, report.modelled, report.bound, report.workgroup)
    if report.effects is not None:
        title = f"time with a parameter at the ends of its range, where it moves by {LEAST:.1%}"
        _print(console, title, _effects(report.effects))
    for file in pictures:
        console.print(Text(f"picture: {file}"), soft_wrap=True)
    if timeline:
        console.print(Text(f"timeline: {timeline}"), soft_wrap=True)


def print_clocks(console: Console, modelled: Modelled, bound: Bound, group: Workgroup) -> None:
    """Print what bounds a launch, how busy the units are, and where its waves' clocks go."""
    _print_bound(console, bound, group.wave_clocks)
    title = "units, and the share of the launch's clocks in which they work"
    _print(console, title, _units(modelled, bound))
    title = f"clocks of the average wave of workgroup {group.number} ({group.waves} waves)"
    _print(console, title, _waves(group))
    _print(console, "the same by source line", _lines(group))
    console.print(_phases(group), highlight=False)
    console.print()


def print_parameters(console: Console, rows: Iterable[Parameter]) -> None:
    """Print the model's parameters, each with its range and its source."""
    for row in rows:
        span = f"{row.low:g} to {row.high:g}, " if row.low < row.high else ""
        style = "" if row.certainty == "published" else "yellow"
        said = Text.assemble(
            (f"{row.name:23}", "bold"),
            f"{row.value:g} {row.unit}".ljust(19),
            (f"{span}{row.certainty}", style),
        )
        console.print(said, soft_wrap=True)
        console.print(
            f"    {row.what} ({row.source})", style="dim", highlight=False, soft_wrap=True
        )


def _print_figures(console: Console, report: Report) -> None:
    modelled, entry = report.modelled, report.workload.entry
    say = partial(console.print, highlight=False)
    hbm = f"{shares(report)['hbm']:.1%} of HBM's {report.limits.hbm_bytes / 1e9:,.0f} GB/s"
    rates = [(f"{modelled.bytes_per_second / 1e9:,.4g} GB/s", hbm)]
    if modelled.flops:
        matrix = (f"{modelled.flops_per_second / 1e12:,.4g} TFLOP/s", _of_matrix(report))
        rates.insert(0 if is_matrix_bound(modelled, report.limits) else 1, matrix)
    first, *others = (rate for rate, _ in rates)
    say(f"[bold]{entry.name}[/bold] on {modelled.arch}")
    say(report.workload.text)
    say(", ".join([f"[bold]{modelled.microseconds:,.4g} us, {first}[/bold]", *others]))
    say(statement(entry.operator), style="yellow")
    if report.changes:
        changed = ", ".join(f"{name}={value:g}" for name, value in report.changes.items())
        say(f"with {changed}", style="yellow")
    for share in filter(None, (share for _, share in rates)):
        say(share)
    if report.bound.launch_share >= LAUNCH:
        say(f"{modelled.parameters['launch']:g} us are the launch's own")
    say()


def _of_matrix(report: Report) -> str:
    """The launch's share of the matrix units' limits; empty without matrix instructions."""
    modelled, limit, share = report.modelled, report.limits, shares(report)
    if share["matrix"] is None:
        return ""
    return (
        f"{share['matrix']:.1%} of the matrix units' {limit.peak_flops / 1e12:,.0f} TFLOP/s at "
        f"{modelled.parameters['clock']:.2f} GHz, {share['matrix_at_modelled_clock']:.1%} at the "
        f"modelled {modelled.clock_ghz:.2f} GHz"
    )


def _print_bound(console: Console, found: Bound, clocks: Clocks) -> None:
    works = f"{UNITS[found.unit]}, at work in {found.unit_share:.0%} of the clocks"
    said = {
        "unit": works,
        "latency": f"latency: waves wait; the busiest unit is {works}",
        "issue": f"issue: waves have other instructions; the busiest unit is {works}",
        "tail": f"the tail of the grid: {found.tail_share:.0%} of the places for workgroups are "
        f"empty; the busiest unit is {works}",
        "launch": f"the launch, {found.launch_share:.0%} of the time; the busiest unit is {works}",
    }[found.kind]
    console.print(f"[bold]bound by[/bold] {said}", highlight=False)
    own = f"{found.unit} busy" if found.kind == "latency" else ""  # not why the unit idles
    stalls = [(name, value) for name, value in clocks.stalls.items() if name != own]
    listed = ", ".join(f"{name} {value / clocks.total:.0%}" for name, value in stalls[:3])
    console.print(f"waves wait most for: {listed}", highlight=False)
    console.print()


def _units(modelled: Modelled, bound: Bound) -> Table:
    table = plain_table("", ">share", "")
    for name, share in units(modelled).items():
        table.add_row(name, f"{share:.1%}", Text("█" * round(min(share, 1) * BAR), "green"))
    if bound.tail_share >= SHOWN:
        table.add_row("(no workgroup)", f"{bound.tail_share:.1%}", "")
    return table


def _waves(group: Workgroup) -> Table:
    clocks = group.wave_clocks
    table = plain_table("", "", ">clocks", ">share", "")
    for (kind, name), value in _parts(clocks).items():
        if value >= SHOWN * clocks.total:
            style = "yellow" if kind == WAIT else ""
            what = WHAT.get(name, "") if kind == WAIT or name == "control" else ""
            table.add_row(
                Text(kind, style), name, f"{value:,.0f}", f"{value / clocks.total:.1%}", what
            )
    return table


def _parts(clocks: Clocks) -> dict[tuple[str, str], float]:
    """Clocks by what the average wave does, the largest first."""
    parts = {(ISSUE, unit): value for unit, value in clocks.issue.items()}
    parts |= {(WAIT, stall): value for stall, value in clocks.stalls.items()}
    return dict(sorted(parts.items(), key=lambda item: -item[1]))


def _lines(group: Workgroup) -> Table:
    table = plain_table("line", ">clocks", ">share", "mostly")
    total = group.wave_clocks.total
    for line, clocks in list(group.lines.items())[:LINES]:
        (kind, name), most = next(iter(_parts(clocks).items()))
        table.add_row(
            line,
            f"{clocks.total:,.0f}",
            f"{clocks.total / total:.1%}",
            f"{kind}: {name} {most / clocks.total:.0%}",
        )
    rest = list(group.lines.values())[LINES:]
    if rest:
        left = sum(clocks.total for clocks in rest)
        table.add_row(f"({len(rest)} more)", f"{left:,.0f}", f"{left / total:.1%}", "")
    return table


def _phases(group: Workgroup) -> str:
    found = group.phases
    if found is None:
        return f"the workgroup has no loop: {group.clocks:,.0f} clocks"
    each = found.loop / found.iterations
    return (
        f"the workgroup: {found.before:,.0f} clocks before its loop, {found.loop:,.0f} in it "
        f"({found.iterations:g} times {each:,.0f}), {found.after:,.0f} after it"
    )


def _effects(effects: Sequence[Effect]) -> Table:
    headings = ("parameter", ">value", ">low", ">time", ">high", ">time", "unit", "")
    table = plain_table(*headings, gap=1)
    for effect in effects:
        row = effect.parameter
        table.add_row(
            row.name,
            f"{row.value:g}",
            *(f"{row.low:g}", _change(effect.low)),
            *(f"{row.high:g}", _change(effect.high)),
            row.unit,
            row.certainty,
        )
    return table


def _change(ratio: float) -> str:
    return f"{ratio - 1:+.1%}" if ratio != 1 else ""


def _print(console: Console, title: str, table: Table) -> None:
    console.print(title, style="bold", highlight=False)
    console.print(table)
    console.print()
