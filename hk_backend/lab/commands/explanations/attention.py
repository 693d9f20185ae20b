"""Explains how the keys of a step of attention are dealt to workgroups."""

from __future__ import annotations

from functools import partial

import typer
from rich.console import Console

from hk_backend import _emulator
from hk_backend.kernels import catalogue
from hk_backend.kernels.masks import PART
from hk_backend.kernels.row_sources import PAGED
from hk_backend.lab.bench.attention.explain import OPERATOR, AttentionExplanation
from hk_backend.lab.bench.attention.explain import explain as explained
from hk_backend.lab.bench.rivals import table
from hk_backend.lab.commands.explain import Asked, Explanation
from hk_backend.lab.timing import shapes
from hk_backend.lab.timing.calibration import statement


def explain(asked: Asked) -> Explanation:
    """Explains a step of this shape. Raises `typer.BadParameter` if there is no such step."""
    kernels = catalogue(asked.arch)
    of_parts = [
        entry
        for entry in kernels.families.get(OPERATOR, ())
        if entry.facts["mask"] == PART and entry.facts["keys"] == PAGED
    ]
    if not of_parts:
        raise typer.BadParameter(f"{asked.arch} has no kernels for parts", param_hint="--arch")
    units = int(_emulator.TimingParameters(asked.arch)["compute_units"])
    try:
        sizes = shapes.parse(of_parts[0], asked.shape).shape
        found = explained(kernels, sizes, asked.head_size, units, asked.clocked, asked.say)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--shape") from None
    return Explanation(found.as_json(), partial(_show, found))


def _show(found: AttentionExplanation, console: Console) -> None:
    best, facts = found.rivals[0], found.rivals[0].facts
    parts, keys = facts["parts"], facts["keys"]
    shared = f"keys in {parts} parts of {keys}" if parts != 1 else "keys not shared"
    dealt = f"{facts['rows']} rows to a workgroup, {shared}"
    console.print(f"[bold]{dealt}[/bold], {best.planned:.4g} us (planned)", highlight=False)
    console.print(statement(OPERATOR), style="yellow", highlight=False)
    console.print("with the kernel that joins parts, and the gaps before both\n", highlight=False)
    console.print(table(found.rivals))
