"""HK's decode attention on the inputs of stock's: its result, and its time by the clock."""

from __future__ import annotations

from dataclasses import dataclass, fields

from hk_backend import ops
from hk_backend.devices import always
from hk_backend.devices.hip.attention_decode import OPERATOR
from hk_backend.devices.hip.call import KernelCall
from hk_backend.devices.hip.emulated import emulated_device
from hk_backend.kernels import CodeObjectError, catalogue
from hk_backend.lab.stock.batches import Batch, error_of
from hk_backend.lab.stock.kernel import launch_apart
from hk_backend.lab.stock.ours import NAME
from hk_backend.lab.timing import model
from hk_backend.lab.timing.launch import trace
from hk_backend.lab.timing.workloads import attention_decode as decode
from hk_backend.terms.attention_arguments import AttentionArguments, DecodeArguments


@dataclass(frozen=True)
class OurDecode:
    """HK's decode attention over a cache of this layout (`Kernel` of a `Batch`)."""

    arch: str
    layout: str
    name: str = NAME

    def refuses(self, of: Batch) -> str:
        try:
            self._call(of)
        except (ValueError, CodeObjectError) as error:
            return str(error)
        return ""

    def error(self, of: Batch) -> float:
        given = of.arguments(self.layout)
        assert given.paged_kv is not None
        assert given.block_table is not None
        assert given.seq_lens is not None
        with always(emulated_device(self.arch)):
            ops.attention_decode(
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
                out=given.out,
            )
        return error_of(given.out, given)

    def microseconds(self, of: Batch) -> float:
        entry = self._call(of).kernels[-1]
        shape = decode.Shape(
            of.queries, of.keys, of.heads, of.kv_heads, block_size=of.page, window=of.window
        )
        return launch_apart(model.time(trace(decode.launch(entry, shape))))

    def _call(self, of: Batch) -> KernelCall:
        given = of.arguments(self.layout, seed=None)
        known = {field.name: getattr(given, field.name) for field in fields(AttentionArguments)}
        return OPERATOR.prepare(DecodeArguments(**known), catalogue(self.arch))
