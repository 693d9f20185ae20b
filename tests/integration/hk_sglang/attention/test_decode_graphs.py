"""Decode rows of a layer in a graph that the emulated GPU replays, as SGLang's runner does.

The runner captures a batch of one size. Before each replay it writes the rows of another step into
the same tensors, padded to that size, and has metadata made. No Python of a layer runs in a replay.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.model_executor.forward_batch_info import ForwardMode

from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.devices.hip.device import OnTheHost
from tests.devices.hip.graph import Graph
from tests.integration.adapter import Environment
from tests.integration.hk_sglang.attention import engine
from tests.integration.hk_sglang.attention.batch import Batch, Server
from tests.integration.shared.attention.expected import check_rows
from tests.integration.shared.attention.gpu import emulated_gpu
from tests.integration.shared.attention.rows import Row

REQUESTS, REPLAYS, FEW, LONGEST = 6, 200, 10, 130
CAPTURING = "sglang.srt.model_executor.runner_utils.capture_mode.is_capture_mode"


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[OnTheHost]:
    with emulated_gpu(monkeypatch) as found:
        yield found


@pytest.fixture
def decode(
    device: OnTheHost, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RouteCounters]:
    """Install the attention routes over a parent with graphs; returns decode's counters."""
    environment(HK_DEVICE="hip", HK_EVIDENCE="ignore")
    allocate = lambda self, max_bs, max_num_tokens: None  # noqa: E731
    monkeypatch.setattr(TorchNativeAttnBackend, "init_cuda_graph_state", allocate, raising=False)
    with engine.routed("attention,decode"):
        yield routes.counters("decode")


class Runner:
    """The tensors of a runner's padded batch, and a server with HK in its backend."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.seq_lens = torch.ones(REQUESTS, dtype=torch.int64)
        self.requests = torch.zeros(REQUESTS, dtype=torch.int64)
        self.slots = torch.zeros(REQUESTS, dtype=torch.int64)
        self.query = torch.zeros(REQUESTS, server.num_heads * server.head_size, dtype=server.dtype)
        self.key = torch.zeros(REQUESTS, server.num_kv_heads, server.head_size, dtype=server.dtype)
        server.backend.init_cuda_graph_state(REQUESTS, REQUESTS)

    def view(self, batch: Batch, lengths_on_host: bool = True, layer: int = 0) -> Any:
        """The padded batch of a step, in the runner's own tensors."""
        real = len(batch.rows)
        self.seq_lens.fill_(1)[:real] = batch.metadata.seq_lens
        self.requests.zero_()[:real] = batch.requests
        self.slots.zero_()[:real] = batch.metadata.out_cache_loc
        self.query[:real] = torch.cat(batch.queries[layer]).flatten(1)
        return SimpleNamespace(
            forward_mode=ForwardMode.DECODE,
            batch_size=REQUESTS,
            seq_lens=self.seq_lens,
            seq_lens_cpu=self.seq_lens.clone() if lengths_on_host else None,
            req_pool_indices=self.requests,
            out_cache_loc=self.slots,
            spec_info=None,
            encoder_lens=None,
        )

    def forward(self, view: Any, index: int = 0) -> torch.Tensor:
        layer = self.server.attention[index]
        found: torch.Tensor = self.server.backend.forward_decode(
            self.query, self.key, self.key, layer, view, save_kv_cache=False
        )
        return found


def step(server: Server, seed: int) -> Batch:
    """A batch of up to `REQUESTS` decode rows of any lengths."""
    draw = random.Random(seed)
    lengths = [draw.choice((1, 15, 16, 17, draw.randint(1, LONGEST))) for _ in range(REQUESTS)]
    rows = [Row(1, cached) for cached in lengths[: draw.randint(1, REQUESTS)]]
    batch = Batch(server, rows, "DECODE", seed)
    batch._write(0, [row.length for row in rows])
    return batch


@pytest.mark.parametrize(("page_size", "replays"), [(16, REPLAYS), (1, FEW)])
def test_replays(
    page_size: int,
    replays: int,
    decode: RouteCounters,
    device: OnTheHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lengths, page tables and the number of real rows change between replays."""
    server = Server(dtype=torch.bfloat16, page_size=page_size)
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
        found = out[: len(batch.rows)].view(-1, server.num_heads, server.head_size)
        check_rows(found, batch.made())
        assert out.isfinite().all(), "rows of padding are finite, as the parent's are"
    assert device.library.launch_calls() == calls, "a replay is no launch of HK's"
    assert decode.captured == Tally(1, REQUESTS)
    assert not decode.fallbacks


def test_replays_of_other_modes_are_not_planned(decode: RouteCounters) -> None:
    """A view for a verifying graph has no lengths of prompts, and is the parent's."""
    server = Server(dtype=torch.bfloat16)
    view = Runner(server).view(Batch(server, [Row(1, 30)], "DECODE"))
    view.forward_mode = ForwardMode.TARGET_VERIFY
    server.backend.init_forward_metadata_out_graph(view)
    assert server.backend.hk._planned is None
    assert not routes.is_disabled("attention")
    assert not decode.fallbacks


def test_a_pool_of_windows(
    decode: RouteCounters,
    device: OnTheHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The layers of a sliding window have pages of their own, which change between replays."""
    server = Server([{}, {"sliding_window_size": 15}], windows=(1,), dtype=torch.bfloat16)
    runner, stream = Runner(server), device.memory.stream(0)
    graph = Graph(device.library, stream)
    rows = [[Row(1, 30), Row(1, 60)], [Row(1, 90)], [Row(1, 9), Row(1, 100), Row(1, 44)]]
    Batch(server, rows[0], "DECODE").run()
    device.library.synchronise(stream)
    with monkeypatch.context() as patch:
        patch.setattr(CAPTURING, True)
        view = runner.view(Batch(server, rows[0], "DECODE"))
        server.backend.init_forward_metadata_out_graph(view, in_capture=True)
        with graph.capture():
            out = runner.forward(view, 1)
    written = server.backend.hk._planned.window_slots
    assert decode.captured == Tally(1, REQUESTS)
    for seed, each in enumerate(rows):
        batch = Batch(server, each, "DECODE", seed)
        batch._write(1, [row.length for row in each])
        server.backend.init_forward_metadata_out_graph(runner.view(batch, layer=1))
        graph.replay()
        found = out[: len(each)].view(-1, server.num_heads, server.head_size)
        check_rows(found, batch.made(1), sliding_window=16)
        with pytest.raises(AssertionError):
            check_rows(found, batch.made(1), sliding_window=8)
        slots = server.pool.translate_loc_from_full_to_swa(batch.metadata.out_cache_loc)
        assert torch.equal(written[: len(each)], slots)
