"""`hk-backend bench linear`."""

from __future__ import annotations

import typer

from hk_backend.lab import options
from hk_backend.lab.commands import benchmark
from hk_backend.terminal.output import JsonFlag


def command(
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

    With --device hip, HK's launches on the GPU are measured, with emulated:gfx950 modelled. Beside
    them stand published figures, which decide the layers, tokens and formats.
    Exit code 1 if a case could not be measured or its result was wrong.
    """
    if device is not options.Device.cpu:
        from hk_backend.lab.commands import linear_gpu

        chosen = {"layers": layers, "tokens": tokens, "formats": formats}
        linear_gpu.linear(context, device.value, chosen, as_json)
    from hk_backend.lab.bench.linear.sweep import LinearSweep
    from hk_backend.lab.bench.linear.table import TABLE

    sweep = LinearSweep.parse(layers, tokens, formats, weight_only, rounds)
    benchmark.run_on_host(sweep, TABLE.print, threads, isa, as_json)
