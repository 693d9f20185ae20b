"""A batch with all that SGLang's own backends for ROCm ask of it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode
from sglang.srt.speculative.ngram_info import NgramVerifyInput

from tests.integration.hk_sglang.attention.batch import Batch
from tests.integration.hk_sglang.rocm.defaults.server import DefaultServer
from tests.integration.shared.attention.expected import RowTensors
from tests.integration.shared.defaults.models import SINK


class EngineBatch(Batch):
    """Of a `DefaultServer`."""

    server: DefaultServer

    def compute(self, index: int, sinks: bool, *, wrapped: bool = True) -> torch.Tensor:
        """Metadata, then one layer, by the parent alone if not `wrapped`."""
        backend = self.server.backend
        wrapper = type(backend)
        backend.__class__ = wrapper if wrapped else wrapper.__base__
        heads = self.server.num_heads
        given = {"sinks": torch.full((heads,), SINK, dtype=torch.bfloat16)} if sinks else {}
        try:
            backend.init_forward_metadata(self.metadata)
            return self.call(index, **given)
        finally:
            backend.__class__ = wrapper

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
        if mode in (ForwardMode.DECODE, ForwardMode.TARGET_VERIFY):
            batch.extend_num_tokens = batch.extend_start_loc = None
            batch.extend_seq_lens = batch.extend_prefix_lens = None
            batch.extend_seq_lens_cpu = batch.extend_prefix_lens_cpu = None
        if mode is ForwardMode.TARGET_VERIFY:
            drafts = self.rows[0].query
            batch.seq_lens = batch.seq_lens_cpu = batch.seq_lens - drafts
            batch.seq_lens_sum = int(batch.seq_lens.sum())
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
        """Of each row `[drafts, length]`: each draft sees those before it."""
        masks = (torch.ones(row.query, row.length).tril(row.cached) for row in self.rows)
        return torch.cat([mask.flatten() for mask in masks]).bool()
