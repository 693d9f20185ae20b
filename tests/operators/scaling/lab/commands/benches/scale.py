"""`hk-backend bench scale`."""

from __future__ import annotations

import torch

from hk_backend.lab import options
from hk_backend.lab.bench.pairs import Pair, PairSweep, print_pairs
from hk_backend.lab.commands import benchmark
from hk_backend.terminal.output import JsonFlag
from tests.operators.scaling.ops.scale import scale


def command(rounds: options.Rounds = 7, as_json: JsonFlag = False) -> None:
    """Compare scale with torch's product, alternating between them."""
    x = torch.ones(64, 4096)
    pair = Pair("64x4096", lambda: scale(x, 3.0), lambda: x * 3.0)
    benchmark.run_on_host(PairSweep([pair], rounds), print_pairs, 0, None, as_json)
