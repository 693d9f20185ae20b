"""SGLang's side of the shared attention tests."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tests.integration.hk_sglang.attention.batch import EXTEND, MIXED, Batch, Server
from tests.integration.shared.attention.rows import Row

__all__ = ["EXTEND", "MIXED", "check", "layer", "run"]


def layer(dtype: torch.dtype = torch.float32) -> Server:
    """The one layer of a server."""
    return Server(dtype=dtype)


def run(layer: Server, rows: Sequence[Row]) -> None:
    Batch(layer, rows).run()


def check(layer: Server, rows: Sequence[Row], seed: int = 0) -> None:
    Batch(layer, rows, seed=seed).check()
