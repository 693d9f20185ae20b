"""vLLM's side of the shared attention tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hk_vllm.attention import contest
from hk_vllm.attention.backend import wrapper_of
from vllm.v1.attention.backends import cpu_attn

from hk_backend.routing.routes import RouteCounters, routes
from tests.integration.hk_vllm.attention.batch import (
    MIXED,
    Batch,
    Layer,
    vllm_config,
    with_drafts,
)
from tests.integration.shared.attention.engine import Whose
from tests.integration.shared.attention.expected import RowTensors
from tests.integration.shared.attention.rows import DRAFTS, EXTEND, KINDS, Row
from tests.integration.shared.attention.split import UNREADABLE, Known

HK_CPU, STOCK_CPU = wrapper_of("CPU_ATTN"), cpu_attn.CPUAttentionBackend
"""vLLM's real CPU backend, with HK around it and without."""
__all__ = ["EXTEND", "KINDS", "MIXED"]
KNOWN = {"says": Known(), "silent": Known(says=False), "unreadable": Known(readable=False)}
PAGE, SHORTEST = 1, 0


@contextmanager
def routed(backend: str = "attention") -> Iterator[RouteCounters]:
    routes.reset()
    yield routes.counters("attention")
    routes.reset()


def layer(dtype: torch.dtype = torch.float32, drafts: int = 0) -> Layer:
    return Layer(HK_CPU, dtype, speculating(vllm_config(dtype), drafts))


def measured(dtype: torch.dtype = torch.float32, drafts: int = 0) -> Layer:
    return Layer(HK_CPU, dtype, speculating(short_steps(dtype), drafts))


def speculating(config: Any, drafts: int) -> Any:
    return with_drafts(config, drafts) if drafts else config


def short_steps(dtype: torch.dtype = torch.float32) -> Any:
    """A configuration with steps of at most 130 tokens: the reference takes long for more."""
    config = vllm_config(dtype)
    config.scheduler_config.max_num_batched_tokens = 130
    return config


def prompt(layer: Layer, tokens: int) -> RowTensors:
    return contest.tensors(layer.impl, tokens)


def check(layer: Layer, rows: Sequence[Row], seed: int = 0) -> None:
    Batch(layer, rows, seed).run_and_check()


def without_parent(patch: pytest.MonkeyPatch) -> None:
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the parent computed")

    patch.setattr(cpu_attn.CPUAttentionBackendImpl, "forward", forward)


def whose(known: Known, patch: pytest.MonkeyPatch) -> Whose:
    """Make the function that computes a batch. HK's rows are written when the parent is called.

    The parent must leave those rows alone.
    """
    layer = Layer(HK_CPU, config=with_drafts(vllm_config(), DRAFTS))
    patch.setattr(layer.builder, "_hk_cache_refusal", "" if known.readable else UNREADABLE)
    parent = cpu_attn.CPUAttentionBackendImpl.forward
    output, written = torch.empty(0), None

    def forward(impl: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal written
        written = tokens_of(output)
        mine = output[written].clone()
        result = parent(impl, *args, **kwargs)
        assert torch.equal(output[written], mine)
        return result

    def run(rows: Sequence[Row], seed: int) -> list[bool]:
        nonlocal output, written
        batch = Batch(layer, rows, seed)
        output, written = batch.output, None
        batch.run(**({} if known.says else {"is_prefilling": None}))
        batch.check()
        mine = tokens_of(output) if written is None else written
        parts = mine.split([*(row.query for row in rows), len(mine) - batch.num_tokens])
        assert all(part.all() or not part.any() for part in parts)
        *parts_of_rows, padding = (bool(part.any()) for part in parts)
        assert not padding
        return parts_of_rows

    patch.setattr(cpu_attn.CPUAttentionBackendImpl, "forward", forward)
    return run


def tokens_of(output: torch.Tensor) -> torch.Tensor:
    """Mask of the tokens whose output has been written."""
    return ~output.isnan().all(-1).all(-1)
