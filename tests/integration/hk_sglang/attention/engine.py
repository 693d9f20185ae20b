"""SGLang's side of the shared attention tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch
from hk_sglang.attention import contest
from hk_sglang.attention.install import BUILDER, register_attention
from sglang.srt.layers.attention import attention_registry
from sglang.srt.model_executor.model_runner_components import attention_backend_setup
from sglang.srt.runtime_context import get_context

from hk_backend.config import get_config
from hk_backend.engine import cache_proof
from hk_backend.routing.routes import RouteCounters, routes
from tests.integration.hk_sglang.attention import batch
from tests.integration.hk_sglang.attention.batch import EXTEND, MIXED, Batch, Server
from tests.integration.shared.attention.expected import RowTensors
from tests.integration.shared.attention.rows import Row

__all__ = ["EXTEND", "MIXED", "check", "layer", "measured", "prompt", "routed", "run"]


@contextmanager
def routed() -> Iterator[RouteCounters]:
    """Published as a scheduler process does it, with the factories routed."""
    routes.reset()
    build = getattr(attention_backend_setup, BUILDER)
    with (
        pytest.MonkeyPatch.context() as patch,
        get_context().override_server_args(device="cpu"),
    ):
        patch.setenv("HK_BACKEND", "attention")
        get_config.cache_clear()
        factories = dict(attention_registry.ATTENTION_BACKENDS)
        patch.setattr(attention_registry, "ATTENTION_BACKENDS", factories)
        patch.setattr(batch, "ATTENTION_BACKENDS", factories)
        patch.setattr(cache_proof, "_proven", set())
        patch.setattr(attention_backend_setup, BUILDER, build)  # put back at the end
        assert register_attention() == ""
        yield routes.counters("attention")
    get_config.cache_clear()
    routes.reset()


def layer(dtype: torch.dtype = torch.float32) -> Server:
    """The one layer of a server."""
    return Server(dtype=dtype)


measured = layer


def prompt(server: Server, tokens: int, index: int = 0) -> RowTensors:
    q, k, v = contest.tensors(tokens, server.attention[index], server.runner)
    return q.unflatten(1, (server.num_heads, server.head_size)), k, v


def run(layer: Server, rows: Sequence[Row]) -> None:
    Batch(layer, rows).run()


def check(layer: Server, rows: Sequence[Row], seed: int = 0) -> None:
    Batch(layer, rows, seed=seed).check()
