"""Whether FP8 blocks align with their scales; vLLM's kernels are created without knowing it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from hk_backend.engine.linear.scales import verdict_on_blocks
from hk_backend.terms.verdict import SERVED, Verdict

_verdict: ContextVar[Verdict] = ContextVar("blocks", default=SERVED)


@contextmanager
def creating(layer: Any) -> Iterator[Verdict]:
    """While the weights of `layer` are created, and with them its kernel."""
    verdict = verdict_on(layer)
    token = _verdict.set(verdict)
    try:
        yield verdict
    finally:
        _verdict.reset(token)


def blocks_verdict() -> Verdict:
    """Of the layer that is being created."""
    return _verdict.get()


def verdict_on(layer: Any) -> Verdict:
    """vLLM lets some of its methods merge shards that do not end where a block does."""
    if not getattr(layer, "allow_fp8_block_shape_mismatch", False):
        return SERVED
    return verdict_on_blocks(list(layer.output_partition_sizes), getattr(layer, "tp_size", 1))
