"""`hk-backend bench attention`."""

from __future__ import annotations

from hk_backend.lab import options
from hk_backend.lab.commands import benchmark
from hk_backend.terminal.output import JsonFlag


def command(
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
    benchmark.run_on_host(sweep, TABLE.print, threads, isa, as_json)
