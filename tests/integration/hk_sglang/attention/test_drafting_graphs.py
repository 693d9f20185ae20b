"""A draft model's batches in graphs that the emulated GPU replays, as SGLang's runners do.

One graph has all steps of a draft, another DRAFT_EXTEND_V2. test_decode_graphs.py has the target's.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from copy import copy
from typing import Any

import pytest
import torch
from sglang.srt.speculative.eagle_info import EagleDraftInput

from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.devices.hip.device import OnTheHost
from tests.integration.hk_sglang.attention import engine
from tests.integration.hk_sglang.attention.batch import Batch
from tests.integration.hk_sglang.attention.drafter import Drafter, stand_ins
from tests.integration.hk_sglang.attention.graph_runner import (
    CAPTURING,
    DRAFTS,
    LONGEST,
    REQUESTS,
    Runner,
    captured,
)
from tests.integration.shared.attention.expected import check_rows

REPLAYS = 20


@pytest.fixture
def decode(graphs: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[RouteCounters]:
    """Install the attention routes; returns decode's counters."""
    stand_ins(monkeypatch)
    with engine.routed("attention,decode"):
        yield routes.counters("decode")


def lengths(seed: int) -> list[int]:
    """Cached tokens of up to `REQUESTS` rows."""
    draw = random.Random(seed)
    found = [draw.choice((1, 15, 16, 17, draw.randint(1, LONGEST))) for _ in range(REQUESTS)]
    return found[: draw.randint(1, REQUESTS)]


def written(batch: Batch) -> Batch:
    """The batch, after its keys were written to the pool."""
    batch._write(0, [row.length for row in batch.rows])
    return batch


class DraftRunner(Runner):
    """The tensors of a draft model's runner, whose one batch is that of all steps."""

    def __init__(self, drafter: Drafter) -> None:
        super().__init__(drafter.server)
        self.steps = drafter.steps
        self.steps.init_cuda_graph_state(REQUESTS, REQUESTS)
        self.queries = [self.query[:REQUESTS].clone() for _ in self.steps.attn_backends]

    def view(self, batch: Batch, lengths_on_host: bool = True, layer: int = 0) -> Any:
        """The padded batch, whose drafts do not say their number while it is captured."""
        view = super().view(batch, lengths_on_host, layer)
        rows = self.query[: batch.num_tokens].view(len(batch.rows), DRAFTS, -1)
        for step, own in enumerate(self.queries):
            own[: len(rows)] = rows[:, step]
        view.spec_info = EagleDraftInput()
        view.out_cache_loc = torch.zeros(REQUESTS * DRAFTS, dtype=torch.int64)
        view.seq_lens_sum = int(self.seq_lens.sum())
        return view

    def forwards(self, view: Any) -> list[torch.Tensor]:
        """Call each step's layer with a copy of the batch; returns what the steps write to."""
        layer, key = self.server.attention[0], self.key[:REQUESTS]
        calls = zip(self.steps.attn_backends, self.queries, strict=True)
        return [
            backend.forward_decode(query, key, key, layer, copy(view), save_kv_cache=False)
            for backend, query in calls
        ]


@pytest.mark.parametrize("page_size", [1, 16])
def test_extends(
    page_size: int,
    decode: RouteCounters,
    device: OnTheHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of padding have one key by SGLang's lengths, and as many tokens as the others."""
    drafter = Drafter(DRAFTS, dtype=torch.bfloat16, page_size=page_size)
    server, runner = drafter.server, Runner(drafter.server)
    first = written(drafter.extend(lengths(0)))
    first.run()
    view = runner.view(first)
    graph, out = captured(device, server.backend, view, runner.forward, monkeypatch)
    step = server.backend.hk._planned.plan.decode
    for seed in range(1, REPLAYS):
        batch = written(drafter.extend(lengths(seed), seed))
        view = runner.view(batch, lengths_on_host=seed % 3 > 0)
        view.max_seq_len_host = max(row.cached for row in batch.rows)
        server.backend.init_forward_metadata_out_graph(view)
        server.tables.req_to_token.zero_()  # the scheduler may change it now
        out.fill_(torch.nan)
        graph.replay()
        found = out[: batch.num_tokens].view(-1, server.num_heads, server.head_size)
        check_rows(found, batch.made())
        assert out.isfinite().all(), "rows of padding are finite, as the parent's are"
        assert (step.seq_lens >= 1 + DRAFTS).all(), "a token sees at least itself"
    assert decode.captured == Tally(1, REQUESTS * (1 + DRAFTS))
    assert not decode.fallbacks


@pytest.mark.parametrize("page_size", [1, 16])
def test_steps(
    page_size: int,
    decode: RouteCounters,
    device: OnTheHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each step's rows see one key more, in page tables that all steps share.

    Before a replay SGLang's Triton class calls none of the steps' backends.
    """
    drafter = Drafter(DRAFTS, dtype=torch.bfloat16, page_size=page_size)
    server, runner = drafter.server, DraftRunner(drafter)
    first = written(drafter.drafting(lengths(0)))
    drafter.run(first)
    view = runner.view(first)
    graph, outs = captured(device, runner.steps, view, runner.forwards, monkeypatch)
    tables = {
        each.hk._planned.plan.decode.block_table.data_ptr() for each in runner.steps.attn_backends
    }
    assert len(tables) == 1
    for seed in range(1, REPLAYS):
        batch = written(drafter.drafting(lengths(seed), seed))
        view = runner.view(batch, lengths_on_host=seed % 3 > 0)
        view.max_seq_len_host = max(row.cached for row in batch.rows)
        runner.steps.init_forward_metadata_out_graph(view)
        server.tables.req_to_token.zero_()
        for out in outs:
            out.fill_(torch.nan)
        graph.replay()
        found = torch.stack(outs, 1)[: len(batch.rows)]
        check_rows(found.view(-1, server.num_heads, server.head_size), drafter.made(batch))
        assert all(out.isfinite().all() for out in outs), "padding's are finite"
    assert decode.captured == Tally(DRAFTS - 1, (DRAFTS - 1) * REQUESTS)
    assert not decode.fallbacks


def test_a_graph_of_trees(decode: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph is the parent's if the drafts are trees, and its replays read nothing of HK's."""
    drafter = Drafter(DRAFTS, topk=2, dtype=torch.bfloat16)
    runner = DraftRunner(drafter)
    view = runner.view(drafter.drafting(lengths(0)))
    with monkeypatch.context() as patch:
        patch.setattr(CAPTURING, True)
        runner.steps.init_forward_metadata_out_graph(view, in_capture=True)
        plans = [each.hk._planned.plan for each in runner.steps.attn_backends]
        assert all(plan.decode is None for plan in plans)
    runner.steps.init_forward_metadata_out_graph(view)
    assert all(each.hk._planned is None for each in runner.steps.attn_backends)
    assert not decode.fallbacks
    assert not routes.is_disabled("decode")
