"""Runs one cell of the matrix of defaults through the server that SGLang makes of it.

Batches, metadata, pool and attention backend are SGLang's own. HK is around the backend, with its
kernels in the emulator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import TypeVar

import pytest
import torch
from hk_sglang.attention.server import refuse_server
from sglang.srt.arg_groups.overrides import resolved_view
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode
from sglang.srt.speculative.ngram_info import NgramVerifyInput

from hk_backend.routing.routes import RouteCounters
from tests.integration.hk_sglang.attention.batch import Batch
from tests.integration.hk_sglang.rocm.defaults.server import DefaultServer, server_of
from tests.integration.hk_sglang.rocm.defaults.settings import SETTINGS
from tests.integration.shared.attention.expected import RowTensors, check_rows
from tests.integration.shared.attention.rows import Row
from tests.integration.shared.attention.split import Known
from tests.integration.shared.defaults.cells import Cell, judge
from tests.integration.shared.defaults.models import SINK
from tests.integration.shared.defaults.table import Found
from tests.integration.shared.defaults.traffic import AUTO, Step

T = TypeVar("T")
FP8 = torch.float8_e4m3fn
RANKS = 4
"""The cell's ranks. Only one rank's heads are computed, since the emulator is slow."""


class EngineBatch(Batch):
    """A batch of a `DefaultServer`, with all that SGLang's own backends for ROCm ask of it."""

    server: DefaultServer

    def compute(self, index: int, sinks: bool, *, wrapped: bool = True) -> torch.Tensor:
        """Make the metadata, then compute one layer, by the parent alone if not `wrapped`."""
        heads = self.server.num_heads
        given = {"sinks": torch.full((heads,), SINK, dtype=torch.bfloat16)} if sinks else {}
        with nullcontext() if wrapped else self.server.alone():
            self.server.backend.init_forward_metadata(self.metadata)
            return self.call(index, **given)

    def stored(self, index: int) -> Iterator[RowTensors]:
        """Queries, keys and values of each row, as the pool has them."""
        layer, dtype = self.server.attention[index], self.server.pool.dtype
        scales = (layer.k_scale_float or 1.0, layer.v_scale_float or 1.0)
        for query, *rest in self.made(index):
            key, value = (
                ((tensor / scale).to(dtype).float() * scale).to(tensor.dtype)
                for tensor, scale in zip(rest, scales, strict=True)
            )
            yield query, key, value

    def _metadata(self, mode: ForwardMode) -> ForwardBatch:
        batch = super()._metadata(mode)
        if mode is ForwardMode.DECODE:
            batch.extend_num_tokens = batch.extend_start_loc = None
            batch.extend_seq_lens = batch.extend_prefix_lens = None
            batch.extend_seq_lens_cpu = batch.extend_prefix_lens_cpu = None
        if mode is ForwardMode.TARGET_VERIFY:
            drafts = self.rows[0].query
            batch.spec_info = NgramVerifyInput(custom_mask=self._chains(), draft_token_num=drafts)
        translator = self.server.runner.kv_index_translator
        plan = translator.plan(
            req_pool_indices=batch.req_pool_indices,
            seq_lens=batch.seq_lens,
            seq_lens_cpu=batch.seq_lens_cpu,
            write_virtual=batch.out_cache_loc,
        )
        plan.bind(batch, translator)
        return batch

    def _chains(self) -> torch.Tensor:
        """Masks `[drafts, length]` of all rows, flattened: each draft sees those before it."""
        masks = (torch.ones(row.query, row.length).tril(row.cached) for row in self.rows)
        return torch.cat([mask.flatten() for mask in masks]).bool()


def hold(cell: Cell, counters: RouteCounters) -> Found:
    """Run the cell's traffic, check HK's counters and results, and return the table's words."""
    setting, of = SETTINGS[cell.setting], cell.attention
    heads = of.num_heads // RANKS, of.num_kv_heads // RANKS
    of = replace(of, num_heads=heads[0], num_kv_heads=heads[1])
    server = server_of(of, setting, cell.traffic)
    assert (server.name, server.page_size) == (setting.backend, setting.page_size)
    assert server.pool.dtype == (torch.bfloat16 if cell.traffic.cache == AUTO else FP8)
    on_a_gpu = SimpleNamespace(**{**vars(server.runner), "device": "cuda"})
    assert not refuse_server(server.name, on_a_gpu), "prefill in graphs, or another default"
    index = server.layer_of(of)
    # the window that SGLang gives the layer, which for Mistral is none
    of = replace(of, window=server.window_of(index))
    cell = replace(cell, attention=of)
    for seed, step in enumerate(cell.traffic.steps):
        for mode, rows in batches_of(step, resolved_view(server.server_args).enable_mixed_chunk):
            batch = EngineBatch(server, rows, mode, seed, cell.traffic.template)
            hold_batch(batch, index, cell, counters)
    judge(cell, counters)
    return Found(server.name, "")


def batches_of(step: Step, mixed: bool) -> Iterator[tuple[str, list[Row]]]:
    """Batches as SGLang's scheduler makes them from the rows of one step.

    Rows that verify or decode have batches of their own, but for decode rows of a mixed chunk.
    """
    verify = [row for row in step if row.verifies]
    decode = [row for row in step if row.query == 1 and row.cached and not mixed]
    prompts = [row for row in step if row not in (*verify, *decode)]
    modes = {"TARGET_VERIFY": verify, "DECODE": decode, "MIXED" if mixed else "EXTEND": prompts}
    return ((mode, rows) for mode, rows in modes.items() if rows)


def hold_batch(batch: EngineBatch, index: int, cell: Cell, counters: RouteCounters) -> None:
    """Hold HK's rows to the reference's, and the parent's to its own without HK, bit for bit."""
    broken = error_of(batch, cell)
    if broken:
        with pytest.raises(ValueError, match=broken):
            batch.compute(index, cell.attention.sinks)
        return
    before = counters.served.calls
    found = batch.compute(index, cell.attention.sinks)
    unread = batch.server.backend.hk._layers[batch.server.attention[index]].cache_refusal
    known = Known(says=False, drafts=0, readable=not unread)
    served = counters.served.calls > before
    mine = known.hks(batch.rows) if served else [False] * len(batch.rows)
    lengths = [row.query for row in batch.rows]
    if served:
        paged = any(row.cached for row in chosen(batch.rows, mine))
        made = list(batch.stored(index) if paged else batch.made(index))
        parts = chosen(found.split(lengths), mine)
        check_rows(torch.cat(parts), chosen(made, mine), **cell.attention.mask())
    theirs = [not its for its in mine]
    if any(theirs) and not (served and rounds_queries(batch.server)):
        alone = batch.compute(index, cell.attention.sinks, wrapped=False)
        both = (torch.cat(chosen(of.split(lengths), theirs)) for of in (found, alone))
        assert torch.equal(*(of.view(torch.int16) for of in both)), "not as the parent alone"


def error_of(batch: EngineBatch, cell: Cell) -> str:
    """SGLang's own error for this batch, with HK or without it. Its default `aiter` has some."""
    mode, server = batch.metadata.forward_mode, batch.server
    if server.name != "aiter" or server.windows:
        return ""
    vectorised = server.pool.kv_cache_layout == "vectorized_5d"
    if mode.is_decode() and cell.attention.window is not None and not vectorised:
        return "aiter paged decode cannot honor sliding-window"
    if mode.is_target_verify() and vectorised:
        return "unexpected KV buffer ndim=5"
    return ""


def rounds_queries(server: DefaultServer) -> bool:
    """Whether the parent rounds queries to FP8, by one scale for the whole batch."""
    return server.name == "aiter" and server.pool.dtype.itemsize == 1


def chosen(of: Sequence[T], which: Sequence[bool]) -> list[T]:
    return [each for each, its in zip(of, which, strict=True) if its]
