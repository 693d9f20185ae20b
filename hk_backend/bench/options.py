"""The options of `hk-backend bench attention` and of `bench_serving kernels`; imports no torch."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer


class Isa(str, Enum):
    """`--isa`: see `hk_backend.bench.attention.ISA_LIMITS`."""

    avx2 = "avx2"
    avx512 = "avx512"


Lengths = Annotated[str, typer.Option(help="Tokens of the request.")]
HeadSizes = Annotated[str, typer.Option(help="Channels of a head.")]
Heads = Annotated[str, typer.Option(help="Query heads/KV heads.")]
Dtypes = Annotated[str, typer.Option(help="Of bf16, fp16, fp32.")]
Layouts = Annotated[str, typer.Option(help="all, none, or of those that the table shows.")]
BlockSizes = Annotated[str, typer.Option(help="Tokens of a cache's block, multiples of 8.")]
Rounds = Annotated[int, typer.Option(min=1, help="Samples of each candidate.")]
Threads = Annotated[int, typer.Option(min=0, help="0: as many as torch takes.")]
IsaLimit = Annotated[Isa | None, typer.Option(help="Hold both HK and torch to it.")]
