"""The options of `hk-backend bench` and of `bench_serving kernels`; imports no torch."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer


class Isa(str, Enum):
    """Values of `--isa`: see `hk_backend.lab.bench.isa.ISA_LIMITS`."""

    avx2 = "avx2"
    avx512 = "avx512"
    avx512_bf16 = "avx512_bf16"
    amx = "amx"


class Device(str, Enum):
    """Values of `--device`: the device that runs the timed layers."""

    cpu = "cpu"
    hip = "hip"
    emulated = "emulated:gfx950"


OnDevice = Annotated[Device, typer.Option("--device", help="The GPUs: beside what others publish.")]
Lengths = Annotated[str, typer.Option(help="Tokens of the request.")]
HeadSizes = Annotated[str, typer.Option(help="Channels of a head.")]
Heads = Annotated[str, typer.Option(help="Query heads/KV heads.")]
Dtypes = Annotated[str, typer.Option(help="Any of bf16, fp16, fp32.")]
Layouts = Annotated[str, typer.Option(help="all, none, or any that the table shows.")]
BlockSizes = Annotated[str, typer.Option(help="Tokens of a cache's block, multiples of 8.")]
Cached = Annotated[int, typer.Option(min=0, help="Tokens before them, in the cache.")]
Layers = Annotated[str, typer.Option(help="all, or any that the table shows.")]
Tokens = Annotated[str, typer.Option(help="Rows of the activations.")]
Formats = Annotated[str, typer.Option(help="Weight formats: bf16, fp8_e4m3fn, mxfp4, ...")]
WeightOnly = Annotated[bool, typer.Option("--weight-only", help="Activations stay bfloat16.")]
Rounds = Annotated[int, typer.Option(min=1, help="Samples of each candidate.")]
Threads = Annotated[int, typer.Option(min=0, help="0: as many as torch uses.")]
IsaLimit = Annotated[Isa | None, typer.Option(help="Limit both sides to this instruction set.")]


def is_given(context: typer.Context, name: str) -> bool:
    """Whether the user gave an option on the command line, with any value."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
