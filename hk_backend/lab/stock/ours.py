"""HK's kernels on the inputs of stock's: results on the emulated GPU, and times by the clock."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from hk_backend import _emulator, ops
from hk_backend.devices import always
from hk_backend.devices.hip.attention_launch import prepare
from hk_backend.devices.hip.attention_parts import kernels_of
from hk_backend.devices.hip.dealing import DealtLayer
from hk_backend.devices.hip.emulated import emulated_device
from hk_backend.kernels import CodeObjectError, catalogue
from hk_backend.kernels.gemm_choice import planned
from hk_backend.kernels.gemm_operands import LAYERS, family
from hk_backend.lab.stock.batches import Batch, error_of
from hk_backend.lab.stock.kernel import launch_apart
from hk_backend.lab.stock.layers import Layer
from hk_backend.lab.timing import model
from hk_backend.lab.timing.launch import Launch, trace
from hk_backend.lab.timing.workloads import attention_merge as merge
from hk_backend.lab.timing.workloads import attention_prefill as attention
from hk_backend.lab.timing.workloads import gemm

NAME = "HK"


@dataclass(frozen=True)
class OurAttention:
    """HK's attention over a cache of this layout (`Kernel` of a `Batch`)."""

    arch: str
    layout: str
    name: str = NAME

    def refuses(self, of: Batch) -> str:
        try:
            prepare(of.arguments(self.layout, seed=None), catalogue(self.arch))
        except (ValueError, CodeObjectError) as error:
            return str(error)
        return ""

    def error(self, of: Batch) -> float:
        given = of.arguments(self.layout)
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
        return error_of(given.out, given)

    def microseconds(self, of: Batch) -> float:
        return sum(_microseconds(launch) for launch in self._planned(of))

    def _planned(self, of: Batch) -> list[Launch]:
        """The planner's launch over whole keys; or that over parts of the keys, and the merge."""
        kernels = catalogue(self.arch)
        call = prepare(of.arguments(self.layout, seed=None), kernels)
        shared = kernels_of(call, kernels)
        layer = DealtLayer.of(call, _compute_units(self.arch), parts=shared is not None)
        tokens = sum(of.queries)
        choice = layer.choose(tokens, len(of.queries), max(of.keys))
        sizes = of.heads, of.kv_heads
        shape = attention.Shape(of.queries, of.keys, *sizes, block_size=of.page, window=of.window)
        number = choice.parts.number
        if number == 1 or shared is None:
            (entry,) = (kernel for kernel in call.kernels if kernel.tile.rows == choice.rows)
            return [attention.launch(entry, shape)]
        parts, joins = shared
        joined = merge.Shape(tokens, of.heads, number)
        return [
            attention.launch(parts[0], replace(shape, parts=number)),
            merge.launch(joins[0], joined),
        ]


@dataclass(frozen=True)
class OurLinear:
    """HK's product of quantised operands (`Kernel` of a `Layer`)."""

    arch: str
    name: str = NAME

    def refuses(self, of: Layer) -> str:
        found = family(catalogue(self.arch), LAYERS[of.format])
        return "" if found else f"no kernel multiplies {of.format}"

    def error(self, of: Layer) -> float:
        operands = of.operands()
        with always(emulated_device(self.arch)):
            weight = operands.packed()
            out = ops.linear(operands.x, weight, None, torch.bfloat16, operands.x_scale)
        return operands.error_of(out)

    def microseconds(self, of: Layer) -> float:
        kernels = family(catalogue(self.arch), LAYERS[of.format])
        choice = planned(kernels, of.m, of.n, of.k, _compute_units(self.arch))
        return _microseconds(gemm.launch(choice.entry, gemm.Shape(of.m, of.n, of.k, choice.splits)))


def _compute_units(arch: str) -> int:
    return int(_emulator.TimingParameters(arch)["compute_units"])


def _microseconds(launch: Launch) -> float:
    return launch_apart(model.time(trace(launch)))
