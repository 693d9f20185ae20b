"""vLLM's side of the shared attention tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from hk_vllm.attention import contest
from hk_vllm.attention.backend import wrapper_of

from hk_backend.routing.routes import RouteCounters, routes
from tests.integration.hk_vllm.attention.batch import MIXED, Batch, Layer, vllm_config
from tests.integration.shared.attention.expected import RowTensors
from tests.integration.shared.attention.rows import EXTEND, Row

__all__ = ["EXTEND", "MIXED", "check", "layer", "measured", "prompt", "routed", "run"]


@contextmanager
def routed() -> Iterator[RouteCounters]:
    routes.reset()
    yield routes.counters("attention")
    routes.reset()


def layer(dtype: torch.dtype = torch.float32) -> Layer:
    return Layer(wrapper_of("CPU_ATTN"), dtype)


def measured(dtype: torch.dtype = torch.float32) -> Layer:
    return Layer(wrapper_of("CPU_ATTN"), dtype, short_steps(dtype))


def short_steps(dtype: torch.dtype = torch.float32) -> Any:
    """Of a server whose steps have at most 130 tokens: the reference takes long for more."""
    config = vllm_config(dtype)
    config.scheduler_config.max_num_batched_tokens = 130
    return config


def prompt(layer: Layer, tokens: int) -> RowTensors:
    return contest.tensors(layer.impl, tokens)


def run(layer: Layer, rows: Sequence[Row]) -> None:
    Batch(layer, rows).run()


def check(layer: Layer, rows: Sequence[Row], seed: int = 0) -> None:
    Batch(layer, rows, seed).run_and_check()
