"""Decode rows of a layer in a graph that the emulated GPU replays, as SGLang's runner does.

The runner captures a batch of one size. Before each replay it writes the rows of another step into
the same tensors, padded to that size, and has metadata made. No Python of a layer runs in a replay.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial

import pytest
import torch

from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.devices.hip.device import OnTheHost
from tests.integration.hk_sglang.attention import engine
from tests.integration.hk_sglang.attention.batch import Batch, Server, drafts_of
from tests.integration.hk_sglang.attention.graph_runner import (
    CAPTURING,
    DRAFTS,
    LONGEST,
    REQUESTS,
    Runner,
    captured,
)
from tests.integration.shared.attention.expected import check_rows
from tests.integration.shared.attention.rows import Row

REPLAYS, FEW = 200, 10


@pytest.fixture
def decode(graphs: None) -> Iterator[RouteCounters]:
    """Install the attention routes; returns decode's counters."""
    with engine.routed("attention,decode"):
        yield routes.counters("decode")


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
    runner, warm_up = Runner(server), step(server, 0)
    warm_up.run()
    view = runner.view(warm_up)
    graph, out = captured(device, server.backend, view, runner.forward, monkeypatch)
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
    runner, warm_up = Runner(server), batch_of(server, [30, 60])
    warm_up.run()
    forward = partial(runner.forward, index=1)
    graph, out = captured(device, server.backend, runner.view(warm_up), forward, monkeypatch)
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
