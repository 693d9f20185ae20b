"""`hk-backend bench gpu --against stock`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from hk_backend.extras import missing
from hk_backend.lab.commands import benchmark
from hk_backend.terminal import errors
from hk_backend.terminal.output import JsonFlag, progress

if TYPE_CHECKING:
    from hk_backend.lab.stock import published
    from hk_backend.lab.stock.comparison import Compared, Comparison


class Against(str, Enum):
    """Values of `--against`."""

    stock = "stock"


class Arch(str, Enum):
    """Values of `--arch`."""

    gfx942 = "gfx942"
    gfx950 = "gfx950"


def command(
    against: Annotated[
        Against, typer.Option(help="The Triton kernels of the engine that is installed here.")
    ] = Against.stock,
    arch: Annotated[Arch, typer.Option(help="Arch of the emulated GPU.")] = Arch.gfx950,
    cases: Annotated[
        str,
        typer.Option(
            help="Only cases that have these words, as in 'llama8b n4096,llama8b-qkv fp8_block'; "
            "'published' models the published figures of Triton kernels again, which takes minutes."
        ),
    ] = "",
    into: Annotated[
        Path | None,
        typer.Option(help="Write a short form into this document, between the engine's marks."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare HK's kernels with the engine's own: both are executed and timed by the clock.

    Needs the extra `triton` in the engine's environment. Losses stand first.
    Exit code 1 if a case could not be computed.
    """
    from hk_backend import __version__
    from hk_backend.lab.timing.calibration import statement

    again = cases.strip() == "published"
    sweep = _published(arch.value) if again else _comparison(arch.value, cases)
    from hk_backend.lab.stock import published
    from hk_backend.lab.stock.comparison import TABLE

    environment = {
        "gpu": f"{arch.value}, emulated",
        "HK": statement("attention_prefill"),
        "stock": published.statement(arch.value),
        "hk": __version__,
    }

    def show(console: Console, rows: Sequence[Any]) -> None:
        if again:
            for row in rows:
                console.print(published.line_of(row), highlight=False, markup=False)
        else:
            TABLE.print(console, rows)
        if into is not None and rows:
            _write(into, [] if again else rows)

    benchmark.run(sweep, environment, show, as_json)


def _write(into: Path, rows: Sequence[Compared]) -> None:
    """Write the parts that have rows, and the error of the clock on Triton code."""
    from hk_backend.lab import document
    from hk_backend.lab.stock import published, summary

    with errors.in_one_line(progress, document.DocumentError, OSError):
        for part, of in summary.parts_of(rows).items():
            document.put_into(into, summary.MARKS[part], summary.text_of(of))
        document.put_into(into, published.MARKS, published.text())


def _published(arch: str) -> published.Sweep:
    """The published figures; ends the command without Triton, or for an arch without figures."""
    from hk_backend.lab.stock import published

    if arch != published.ARCH:
        raise typer.BadParameter(f"published figures are of {published.ARCH}", param_hint="--arch")
    from hk_backend.lab.foreign import triton_driver

    try:
        return published.Sweep(triton_driver.install(arch))
    except ModuleNotFoundError as error:
        errors.say(progress, missing(error, "bench gpu --against stock", "triton"))
        raise typer.Exit(1) from None


def _comparison(arch: str, words: str) -> Comparison:
    """The cases with the kernels of the engine; ends the command without an engine or Triton."""
    from hk_backend.kernels import CodeObjectError, catalogue
    from hk_backend.lab.stock import cases, engines
    from hk_backend.lab.stock.comparison import Comparison

    try:
        chosen = cases.chosen_cases(words)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--cases") from None
    with errors.in_one_line(progress, CodeObjectError, engines.NoEngine):
        catalogue(arch)
        try:
            found = engines.kernels(arch)
        except ModuleNotFoundError as error:
            errors.say(progress, missing(error, "bench gpu --against stock", "triton"))
            raise typer.Exit(1) from None
    return Comparison(arch, chosen, found)
