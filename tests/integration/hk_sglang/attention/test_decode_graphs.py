"""Decode rows of a layer in a graph that the emulated GPU replays, as SGLang's runner does.

The runner captures a batch of one size. Before each replay it writes the rows of another step into
the same tensors, padded to that size, and has metadata made. No Python of a layer runs in a replay.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.devices.hip.device import OnTheHost
from tests.devices.hip.graph import Graph
from tests.integration.hk_sglang.attention import engine
from tests.integration.hk_sglang.attention.batch import Batch, Server, drafts_of
from tests.integration.shared.attention.expected import check_rows
from tests.integration.shared.attention.rows import Row

REQUESTS, REPLAYS, FEW, LONGEST, DRAFTS = 6, 200, 10, 130, 3
CAPTURING = "sglang.srt.model_executor.runner_utils.capture_mode.is_capture_mode"


@pytest.fixture
def decode(graphs: None) -> Iterator[RouteCounters]:
    """Install the attention routes; returns decode's counters."""
    with engine.routed("attention,decode"):
        yield routes.counters("decode")


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


def batch_of(server: Server, cached: Sequence[int], seed: int = 0) -> Batch:
    """A batch of decode rows behind so many tokens, whose keys are all in the pool."""
    rows = [Row(1 + server.drafts, each, verifies=server.drafts > 0) for each in cached]
    batch = Batch(server, rows, "TARGET_VERIFY" if server.drafts else "DECODE", seed)
    for index in range(len(server.attention)):
        batch._write(index, [row.length for row in rows])
    return batch


def step(server: Server, seed: int) -> Batch:
    """A batch of up to `REQUESTS` decode rows of any lengths."""
    draw = random.Random(seed)
    lengths = [draw.choice((1, 15, 16, 17, draw.randint(1, LONGEST))) for _ in range(REQUESTS)]
    return batch_of(server, lengths[: draw.randint(1, REQUESTS)], seed)


@pytest.mark.parametrize(
    ("page_size", "head_size", "drafts", "replays"),
    [
        (16, 64, 0, REPLAYS),
        (1, 64, 0, FEW),
        (16, 64, DRAFTS, REPLAYS),
        (1, 64, DRAFTS, FEW),
        (16, 96, 0, FEW),
        (1, 80, 0, FEW),
    ],
)
def test_replays(
    page_size: int,
    head_size: int,
    drafts: int,
    replays: int,
    decode: RouteCounters,
    device: OnTheHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lengths, page tables and the number of real rows change between replays."""
    server = Server(dtype=torch.bfloat16, page_size=page_size, head_size=head_size, drafts=drafts)
    runner, stream = Runner(server), device.memory.stream(0)
    warm_up = step(server, 0)
    warm_up.run()
    device.library.synchronise(stream)
    view = runner.view(warm_up)
    graph = Graph(device.library, stream)
    with monkeypatch.context() as patch:
        patch.setattr(CAPTURING, True)
        server.backend.init_forward_metadata_out_graph(view, in_capture=True)
        with graph.capture():
            out = runner.forward(view)
    calls = device.library.launch_calls()
    for seed in range(1, replays + 1):
        batch = step(server, seed)
        view = runner.view(batch, lengths_on_host=seed % 3 > 0)
        server.backend.init_forward_metadata_out_graph(view)
        server.tables.req_to_token.zero_()  # the scheduler may change it now
        out.fill_(torch.nan)
        graph.replay()
        found = out[: batch.num_tokens].view(-1, server.num_heads, server.head_size)
        check_rows(found, batch.made())
        assert out.isfinite().all(), "rows of padding are finite, as the parent's are"
    assert device.library.launch_calls() == calls, "a replay is no launch of HK's"
    assert decode.captured == Tally(1, REQUESTS * runner.tokens)
    assert not decode.fallbacks


@pytest.mark.parametrize("topk", [1, 2])
def test_a_graph_that_is_the_parents(
    topk: int, decode: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trees of drafts are captured by the parent alone, as are rows of another width.

    A replay of such a graph reads nothing of HK's.
    """
    server = Server(dtype=torch.bfloat16, drafts=DRAFTS)
    runner, batch = Runner(server), batch_of(server, [30])
    view = runner.view(batch)
    view.spec_info = drafts_of(1 + DRAFTS if topk > 1 else 3, topk)
    with monkeypatch.context() as patch:
        patch.setattr(CAPTURING, True)
        server.backend.init_forward_metadata_out_graph(view, in_capture=True)
        assert server.backend.hk._planned.plan.decode is None
    server.backend.init_forward_metadata_out_graph(view)
    assert server.backend.hk._planned is None
    assert not decode.fallbacks
    assert not routes.is_disabled("decode")


@pytest.mark.parametrize("drafts", [0, DRAFTS])
def test_a_pool_of_windows(
    drafts: int,
    decode: RouteCounters,
    device: OnTheHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The layers of a sliding window have pages of their own, which change between replays.

    A rank without requests replays a graph for others' sake. It has no drafts, and writes to no
    request's slots.
    """
    server = Server(
        [{}, {"sliding_window_size": 15}], windows=(1,), dtype=torch.bfloat16, drafts=drafts
    )
    runner, stream = Runner(server), device.memory.stream(0)
    graph = Graph(device.library, stream)
    batch_of(server, [30, 60]).run()
    device.library.synchronise(stream)
    with monkeypatch.context() as patch:
        patch.setattr(CAPTURING, True)
        view = runner.view(batch_of(server, [30, 60]))
        server.backend.init_forward_metadata_out_graph(view, in_capture=True)
        with graph.capture():
            out = runner.forward(view, 1)
    written = server.backend.hk._planned.window_slots
    assert decode.captured == Tally(1, REQUESTS * runner.tokens)
    for seed, cached in enumerate(([30, 60], [90], [9, 100, 44])):
        batch = batch_of(server, cached, seed)
        server.backend.init_forward_metadata_out_graph(runner.view(batch, layer=1))
        graph.replay()
        found = out[: batch.num_tokens].view(-1, server.num_heads, server.head_size)
        check_rows(found, batch.made(1), sliding_window=16)
        with pytest.raises(AssertionError):
            check_rows(found, batch.made(1), sliding_window=8)
        slots = server.pool.translate_loc_from_full_to_swa(batch.metadata.out_cache_loc)
        assert torch.equal(written[: batch.num_tokens], slots)
        assert not written[batch.num_tokens :].any()
    view = runner.view(batch)
    view.spec_info = None
    view.out_cache_loc = view.out_cache_loc[:0]
    server.backend.init_forward_metadata_out_graph(view)
    assert not written.any()
