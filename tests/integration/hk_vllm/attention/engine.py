"""vLLM's side of the shared attention tests."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from hk_vllm.attention.backend import wrapper_of

from tests.integration.hk_vllm.attention.batch import MIXED, Batch, Layer
from tests.integration.shared.attention.rows import EXTEND, Row

__all__ = ["EXTEND", "MIXED", "check", "layer", "run"]


def layer(dtype: torch.dtype = torch.float32) -> Layer:
    return Layer(wrapper_of("CPU_ATTN"), dtype)


def run(layer: Layer, rows: Sequence[Row]) -> None:
    Batch(layer, rows).run()


def check(layer: Layer, rows: Sequence[Row], seed: int = 0) -> None:
    batch = Batch(layer, rows, seed)
    batch.run()
    batch.check()
