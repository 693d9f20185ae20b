"""SGLang's side of the shared attention tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest
import torch
from hk_sglang.attention import contest
from hk_sglang.attention.install import BUILDER, DRAFT_FACTORIES, register_attention
from sglang.srt.layers.attention import attention_registry
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.model_executor.model_runner_components import attention_backend_setup
from sglang.srt.runtime_context import get_context
from sglang.srt.speculative.draft_utils import DraftBackendFactory

from hk_backend.config import get_config
from hk_backend.engine import cache_proof
from hk_backend.routing.routes import RouteCounters, routes
from tests.integration.hk_sglang.attention import batch
from tests.integration.hk_sglang.attention.batch import EXTEND, MIXED, Batch, Server
from tests.integration.shared.attention.engine import Whose
from tests.integration.shared.attention.expected import RowTensors
from tests.integration.shared.attention.rows import (
    DECODE,
    FRESH,
    FRESH_ONE,
    SHORT_EXTEND,
    Row,
)
from tests.integration.shared.attention.split import Known

__all__ = ["EXTEND", "MIXED"]
KINDS = (DECODE, EXTEND, FRESH, FRESH_ONE, SHORT_EXTEND)
KNOWN = {mode: Known(says=False, drafts=0) for mode in ("EXTEND", "MIXED")}
"""SGLang's batches of prompts do not say what a row is, and no row of them verifies drafts."""
PAGE, SHORTEST = 16, 1


@contextmanager
def routed(backend: str = "attention") -> Iterator[RouteCounters]:
    """Publish a configuration as a scheduler process does, with SGLang's factories routed."""
    routes.reset()
    build = getattr(attention_backend_setup, BUILDER)
    with (
        pytest.MonkeyPatch.context() as patch,
        get_context().override_server_args(device="cpu"),
    ):
        patch.setenv("HK_BACKEND", backend)
        get_config.cache_clear()
        factories = dict(attention_registry.ATTENTION_BACKENDS)
        patch.setattr(attention_registry, "ATTENTION_BACKENDS", factories)
        patch.setattr(batch, "ATTENTION_BACKENDS", factories)
        patch.setattr(cache_proof, "_proven", set())
        patch.setattr(attention_backend_setup, BUILDER, build)  # put back at the end
        for name in DRAFT_FACTORIES:
            patch.setattr(DraftBackendFactory, name, getattr(DraftBackendFactory, name))
        assert register_attention() == ""
        yield routes.counters("attention")
    get_config.cache_clear()
    routes.reset()


def layer(dtype: torch.dtype = torch.float32, drafts: int = 0) -> Server:
    """Make a server with one layer."""
    return Server(dtype=dtype, drafts=drafts)


measured = layer


def prompt(server: Server, tokens: int, index: int = 0) -> RowTensors:
    q, k, v = contest.tensors(tokens, server.attention[index], server.runner)
    return q.unflatten(1, (server.num_heads, server.head_size)), k, v


def check(layer: Server, rows: Sequence[Row], seed: int = 0) -> None:
    mode = "DECODE" if all(row.query == 1 and row.cached for row in rows) else "EXTEND"
    if all(row.verifies for row in rows):
        mode = "TARGET_VERIFY"
    Batch(layer, rows, mode, seed).check()


def without_parent(patch: pytest.MonkeyPatch) -> None:
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the parent computed")

    for name in ("forward_extend", "forward_decode"):
        patch.setattr(TorchNativeAttnBackend, name, forward)


def whose(known: Known, patch: pytest.MonkeyPatch) -> Whose:
    """Make the function that computes a batch. The parent is called with all rows but HK's."""
    [mode] = [name for name, each in KNOWN.items() if each is known]
    theirs: list[list[int]] = []
    original = TorchNativeAttnBackend.forward_extend

    @wraps(original)  # the plugin looks at its parameters
    def forward_extend(backend: Any, *args: Any, **kwargs: Any) -> Any:
        theirs.append(list(args[4].extend_seq_lens_cpu))
        assert sum(theirs[-1]) == len(args[0])
        return original(backend, *args, **kwargs)

    patch.setattr(TorchNativeAttnBackend, "forward_extend", forward_extend)
    as_sglangs_own(patch)
    server = Server()

    def run(rows: Sequence[Row], seed: int) -> list[bool]:
        theirs.clear()
        Batch(server, rows, mode, seed).check()
        mine = known.hks(rows)
        left = [row.query for row, its in zip(rows, mine, strict=True) if not its]
        assert theirs == ([left] if left else [])
        return mine

    return run


def as_sglangs_own(patch: pytest.MonkeyPatch) -> None:
    """Let HK take the methods of these tests for SGLang's own, and not for another plugin's."""
    patch.setattr("hk_sglang.attention.backend.foreign_method", lambda *_: "")
