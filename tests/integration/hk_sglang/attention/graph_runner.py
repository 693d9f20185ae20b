"""A batch of one size in the tensors of SGLang's runner, and its capture in a graph."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import torch

from tests.devices.hip.device import OnTheHost
from tests.devices.hip.graph import Graph
from tests.integration.hk_sglang.attention.batch import Batch, Server

REQUESTS, LONGEST, DRAFTS = 6, 130, 3
CAPTURING = "sglang.srt.model_executor.runner_utils.capture_mode.is_capture_mode"

Out = TypeVar("Out")


class Runner:
    """The tensors of a runner's padded batch, and a server with HK in its backend."""

    def __init__(self, server: Server) -> None:
        self.server, self.tokens = server, 1 + server.drafts
        size = REQUESTS * self.tokens
        self.seq_lens = torch.ones(REQUESTS, dtype=torch.int64)
        self.requests = torch.zeros(REQUESTS, dtype=torch.int64)
        self.query = torch.zeros(size, server.num_heads * server.head_size, dtype=server.dtype)
        self.key = torch.zeros(size, server.num_kv_heads, server.head_size, dtype=server.dtype)
        server.backend.init_cuda_graph_state(REQUESTS, size)

    def view(self, batch: Batch, lengths_on_host: bool = True, layer: int = 0) -> Any:
        """The padded batch of a step, in the runner's own tensors but for its new slots."""
        real = len(batch.rows)
        self.seq_lens.fill_(1)[:real] = batch.metadata.seq_lens
        self.requests.zero_()[:real] = batch.requests
        self.query[: batch.num_tokens] = torch.cat(batch.queries[layer]).flatten(1)
        return SimpleNamespace(
            forward_mode=batch.metadata.forward_mode,
            batch_size=REQUESTS,
            seq_lens=self.seq_lens,
            seq_lens_cpu=self.seq_lens.clone() if lengths_on_host else None,
            req_pool_indices=self.requests,
            out_cache_loc=batch.metadata.out_cache_loc,
            spec_info=batch.metadata.spec_info,
            encoder_lens=None,
        )

    def forward(self, view: Any, index: int = 0) -> torch.Tensor:
        layer, backend = self.server.attention[index], self.server.backend
        forward = backend.forward_extend if self.server.drafts else backend.forward_decode
        found: torch.Tensor = forward(
            self.query, self.key, self.key, layer, view, save_kv_cache=False
        )
        return found


def captured(
    device: OnTheHost,
    backend: Any,
    view: Any,
    forward: Callable[[Any], Out],
    patch: pytest.MonkeyPatch,
) -> tuple[Graph, Out]:
    """A graph of `forward` with a padded batch, whose kernels have run before; and its results.

    Args:
        backend: makes the batch's metadata; a drafter's makes those of all steps.
    """
    library, stream = device.mapped.library, device.mapped.stream(0)
    library.synchronise(stream)
    graph = Graph(library, stream)
    with patch.context() as capturing:
        capturing.setattr(CAPTURING, True)
        backend.init_forward_metadata_out_graph(view, in_capture=True)
        with graph.capture():
            out = forward(view)
    return graph, out
