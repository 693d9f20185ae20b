"""`hk-backend bench`: measures operators, or the path to a kernel's launch, on this machine."""

from __future__ import annotations

from typing import NoReturn

import typer

from hk_backend import machine
from hk_backend.config import ConfigError
from hk_backend.lab import options
from hk_backend.lab.commands import benchmark
from hk_backend.lab.commands.benchmark import PrintTable, TimedSweep
from hk_backend.terminal import errors
from hk_backend.terminal.output import JsonFlag, progress

bench = typer.Typer(no_args_is_help=True, help="Measure an operator on this machine.")


@bench.command()
def attention(
    lengths: options.Lengths = "512,1024,2048,4096",
    head_sizes: options.HeadSizes = "64,128",
    heads: options.Heads = "9/3,32/8",
    dtypes: options.Dtypes = "bf16,fp32",
    layouts: options.Layouts = "all",
    block_sizes: options.BlockSizes = "16,128",
    cached: options.Cached = 0,
    rounds: options.Rounds = 7,
    threads: options.Threads = 0,
    isa: options.IsaLimit = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare attention_prefill with torch's SDPA, alternating between them.

    Exit code 1 if a case could not be measured or its result was wrong.
    """
    from hk_backend.lab.bench.attention.sweep import AttentionSweep
    from hk_backend.lab.bench.attention.table import TABLE

    sweep = AttentionSweep.parse(
        lengths, head_sizes, heads, dtypes, layouts, block_sizes, rounds, cached
    )
    _on_host(sweep, TABLE.print, threads, isa, as_json)


@bench.command()
def linear(
    context: typer.Context,
    device: options.OnDevice = options.Device.cpu,
    layers: options.Layers = "all",
    tokens: options.Tokens = "1,4,16,256,1024",
    formats: options.Formats = "bf16,fp8_e4m3fn,mxfp8,mxfp4",
    weight_only: options.WeightOnly = False,
    rounds: options.Rounds = 7,
    threads: options.Threads = 0,
    isa: options.IsaLimit = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare linear with torch's, alternating between them, and with the machine's bounds.

    With --device hip the launches that serve a GPU are measured, with emulated:gfx950 modelled,
    beside what others publish: of --layers, --tokens and --formats those that there are figures of.
    Exit code 1 if a case could not be measured or its result was wrong.
    """
    if device is not options.Device.cpu:
        from hk_backend.lab.commands import linear_gpu

        chosen = {"layers": layers, "tokens": tokens, "formats": formats}
        linear_gpu.linear(context, device.value, chosen, as_json)
    from hk_backend.lab.bench.linear.sweep import LinearSweep
    from hk_backend.lab.bench.linear.table import TABLE

    sweep = LinearSweep.parse(layers, tokens, formats, weight_only, rounds)
    _on_host(sweep, TABLE.print, threads, isa, as_json)


@bench.command()
def launch(rounds: options.Rounds = 31, as_json: JsonFlag = False) -> None:
    """Time the path from an engine's forward to a GPU kernel's launch, against an empty operator.

    No GPU is needed: the HIP library under it returns at once. Exit code 1 if an engine could not
    be measured.
    """
    from hk_backend.lab.bench.launch.measure import OverheadSweep, print_rows

    engines = tuple(
        title.lower()
        for title, distributions in machine.ENGINES.items()
        if machine.version_of(*distributions)
    )
    if not engines:
        progress.print("[red]no engine is installed: the launch path starts in its forward[/red]")
        raise typer.Exit(1)
    _on_host(OverheadSweep(engines, rounds), print_rows, 1, None, as_json)


def _on_host(
    sweep: TimedSweep,
    print_table: PrintTable,
    threads: int,
    isa: options.Isa | None,
    as_json: bool,
) -> NoReturn:
    """Run a sweep with the host kernels, under the conditions that the options ask for."""
    from hk_backend.devices import DeviceError
    from hk_backend.lab.bench import settings

    settings.limit_isa(isa)
    with errors.in_one_line(progress, ConfigError, DeviceError):
        settings.check_device()
    settings.use_threads(threads)
    benchmark.run(sweep, settings.environment(sweep.rounds), print_table, as_json)
