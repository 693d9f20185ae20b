"""Options that several commands share, and lists in them; imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
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


def parse_names(text: str, valid: Sequence[str], option: str) -> list[str]:
    """Parse comma-separated names out of `valid`; raises typer.BadParameter for any other."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in valid:
            raise typer.BadParameter(f"{option}: {name!r} is not one of {', '.join(valid)}")
    return names


def parse_numbers(text: str, option: str, multiple_of: int = 1) -> list[int]:
    """Parse comma-separated positive numbers, each kept once; else raises typer.BadParameter."""
    numbers = []
    for part in text.split(","):
        if not part.strip().isdecimal() or int(part) < 1 or int(part) % multiple_of:
            kind = f"positive multiple of {multiple_of}" if multiple_of > 1 else "positive number"
            raise typer.BadParameter(f"{option}: {part.strip()!r} is not a {kind}")
        numbers.append(int(part))
    return list(dict.fromkeys(numbers))
