"""HK's kernels on the inputs of stock's: results on the emulated GPU, and times by the clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch

from hk_backend import ops
from hk_backend.devices import always
from hk_backend.devices.hip.attention_launch import prepare
from hk_backend.devices.hip.attention_parts import kernels_of
from hk_backend.devices.hip.dealing import DealtLayer
from hk_backend.devices.hip.emulated import emulated_device
from hk_backend.kernels import Catalogue, CodeObjectError, catalogue
from hk_backend.kernels.gemm_choice import planned
from hk_backend.kernels.gemm_operands import LAYERS, family
from hk_backend.lab.bench.gemm.timers import Clock, Problem
from hk_backend.lab.stock import batches
from hk_backend.lab.stock.batches import ROWS, Batch
from hk_backend.lab.stock.layers import Layer
from hk_backend.lab.timing import model
from hk_backend.lab.timing.launch import Launch, trace
from hk_backend.lab.timing.workloads import attention_merge as merge
from hk_backend.lab.timing.workloads import attention_prefill as attention


@dataclass(frozen=True)
class Ours:
    """HK on one emulated GPU. Raises `CodeObjectError` for an arch without kernels."""

    arch: str

    @cached_property
    def clock(self) -> Clock:
        return Clock(self.arch, 1)

    @cached_property
    def kernels(self) -> Catalogue:
        return catalogue(self.arch)

    def refuses_attention(self, batch: Batch, layout: str) -> str:
        """Why HK leaves a batch to the engine; empty: it serves it."""
        try:
            prepare(batch.arguments(layout, seed=None), self.kernels)
        except (ValueError, CodeObjectError) as error:
            return str(error)
        return ""

    def attention_error(self, batch: Batch, layout: str = ROWS) -> float:
        """The error of HK's result (`batches.error_of`), executed with every check."""
        given = batch.arguments(layout)
        with always(emulated_device(self.arch)):
            ops.attention_prefill(
                given.query,
                query_start_loc=given.query_start_loc,
                paged_kv=given.paged_kv,
                block_table=given.block_table,
                seq_lens=given.seq_lens,
                sliding_window=given.sliding_window,
                logits_soft_cap=given.logits_soft_cap,
                sinks=given.sinks,
                k_scale=given.k_scale,
                v_scale=given.v_scale,
                max_seq_len=given.max_seq_len,
                out=given.out,
            )
        return batches.error_of(given.out, given)

    def attention_microseconds(self, batch: Batch, layout: str = ROWS) -> float:
        """Modelled time of the launches that the planner chooses, one after the other."""
        return sum(_stream_microseconds(launch) for launch in self._attention(batch, layout))

    def _attention(self, batch: Batch, layout: str) -> list[Launch]:
        """The launch over whole keys; or that over parts of the keys, and the merge."""
        call = prepare(batch.arguments(layout, seed=None), self.kernels)
        shared = kernels_of(call, self.kernels)
        layer = DealtLayer.of(call, self.clock.compute_units, parts=shared is not None)
        tokens, requests = sum(batch.queries), len(batch.queries)
        choice = layer.choose(tokens, requests, max(batch.keys))
        shape = attention.Shape(
            batch.queries,
            batch.keys,
            batch.heads,
            batch.kv_heads,
            block_size=batch.page,
            window=batch.window,
        )
        if choice.parts.number == 1 or shared is None:
            (entry,) = (kernel for kernel in call.kernels if kernel.tile.rows == choice.rows)
            return [attention.launch(entry, shape)]
        parts, joins = shared
        number = choice.parts.number
        joined = merge.Shape(tokens, batch.heads, number)
        return [
            attention.launch(parts[0], replace(shape, parts=number)),
            merge.launch(joins[0], joined),
        ]

    def linear_error(self, layer: Layer) -> float:
        """The error of HK's result (`Operands.error_of`), executed with every check."""
        operands = layer.operands()
        with always(emulated_device(self.arch)):
            out = ops.linear(
                operands.x, operands.packed(), None, torch.bfloat16, operands.x_scale
            )
        return operands.error_of(out)

    def linear_microseconds(self, layer: Layer) -> float:
        """Modelled time of the planned launch of the product, without the quantiser."""
        of, sizes = LAYERS[layer.format], (layer.m, layer.n, layer.k)
        choice = planned(family(self.kernels, of), *sizes, self.clock.compute_units)
        return self.clock.microseconds(choice.entry, choice.splits, Problem(of, *sizes))


def _stream_microseconds(launch: Launch) -> float:
    return float(model.time(trace(launch)).stream_microseconds)
