"""A draft model of SGLang's without an engine: its backends, and batches as the worker makes them.

Its steps have one batch. A row of `steps` tokens, each of which is one step's, stands for them: as
queries of one call the tokens would see the same keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.model_executor.forward_batch_info import ForwardMode, build_inner_fb_view
from sglang.srt.speculative.draft_utils import DraftBackendFactory
from sglang.srt.speculative.eagle_info import EagleDraftExtendInput, EagleDraftInput
from sglang.srt.speculative.eagle_utils import per_step_draft_out_cache_loc
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from tests.integration.hk_sglang.attention.batch import Batch, Server
from tests.integration.shared.attention.expected import RowTensors
from tests.integration.shared.attention.rows import Row


def drafter(algorithm: str = "STANDALONE") -> dict[str, Any]:
    """Attributes that only a draft model's runner has."""
    return {
        "is_draft_worker": True,
        "spec_algorithm": SpeculativeAlgorithm.from_string(algorithm),
        "draft_attention_backend": None,
    }


class Steps:
    """The backends of steps, like SGLang's `TritonMultiStepDraftBackend`, which refills by itself.

    A parent's own answers are those of a batch without steps, so that HK has to compute them.
    """

    def __init__(self, runner: Any, topk: int, count: int) -> None:
        self.topk = topk
        self.attn_backends = [TorchNativeAttnBackend(runner) for _ in range(count - 1)]

    def init_forward_metadata(self, forward_batch: Any) -> None:
        for each in self.attn_backends:
            each.init_forward_metadata(forward_batch)

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        for each in self.attn_backends:
            each.init_cuda_graph_state(max_bs, max_num_tokens)

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        if not in_capture:
            return
        rows, mode = forward_batch.batch_size, ForwardMode.DECODE
        inner = build_inner_fb_view(forward_batch, bs=rows, forward_mode=mode)
        for each in self.attn_backends:
            each.init_forward_metadata_out_graph(inner, in_capture=True)


def stand_ins(patch: pytest.MonkeyPatch) -> None:
    """Let SGLang's factory make backends that run here; it must not be HK's yet."""

    def extend(self: Any) -> Any:
        return TorchNativeAttnBackend(self.draft_model_runner)

    def steps(self: Any) -> Any:
        count = self.speculative_num_steps
        return Steps(self.draft_model_runner, self.topk, count) if count > 1 else None

    patch.setattr(DraftBackendFactory, "create_draft_extend_backend", extend)
    patch.setattr(DraftBackendFactory, "create_decode_backend", steps)


class Drafter:
    """A server's part with a draft model that drafts `steps` tokens in a chain, or `topk` in each.

    Attributes:
        steps: SGLang's backends of the steps; one less than there are tokens.
        server: its backend is that of all other batches.
    """

    def __init__(self, steps: int, topk: int = 1, **facts: Any) -> None:
        changes = drafter() | facts.pop("changes", {})
        self.server = Server(drafts=steps, changes=changes, **facts)
        self.first = self.server.backend
        runner = self.server.runner
        runner.attn_backend = self.first
        factory = DraftBackendFactory(runner, topk, steps)
        self.steps: Any = factory.create_decode_backend()
        self.server.backend = runner.attn_backend = factory.create_draft_extend_backend()

    def extend(self, cached: Sequence[int], seed: int = 0) -> Batch:
        """A batch of DRAFT_EXTEND_V2: what was verified, in each of the rows."""
        width = 1 + self.server.drafts
        batch = Batch(self.server, [Row(width, each) for each in cached], "DRAFT_EXTEND_V2", seed)
        batch.metadata.spec_info = EagleDraftExtendInput(num_tokens_per_req=width)
        return batch

    def drafting(self, cached: Sequence[int], seed: int = 0) -> Batch:
        """A batch of all steps, behind so many tokens of each row."""
        rows = [Row(self.server.drafts, each, verifies=True) for each in cached]
        batch = Batch(self.server, rows, "TARGET_VERIFY", seed)
        batch.metadata.forward_mode = ForwardMode.DECODE
        batch.metadata.spec_info = EagleDraftInput(num_tokens_per_req=self.steps.topk)
        return batch

    def run(self, batch: Batch) -> torch.Tensor:
        """Make the metadata, then call every step: `[rows * steps, heads, channels]`."""
        self.steps.init_forward_metadata(batch.metadata)
        return self.call(batch)

    def call(self, batch: Batch) -> torch.Tensor:
        """Call every step's layer with a copy of the batch of its own, as SGLang does."""
        count, rows = self.server.drafts, len(batch.rows)
        slots = per_step_draft_out_cache_loc(batch.metadata.out_cache_loc, rows, 1, count)
        of_steps = (torch.stack(tensors, 1).unbind() for tensors in batch._new(0))
        outs = []
        for backend, place, q, k, v in zip(self.steps.attn_backends, slots, *of_steps):  # noqa: B905
            own = replace(batch.metadata, out_cache_loc=place)
            outs.append(backend.forward(q.flatten(1), k, v, self.server.attention[0], own, True))
        return torch.stack(outs, 1).view(-1, self.server.num_heads, self.server.head_size)

    def made(self, batch: Batch) -> Iterator[RowTensors]:
        """The rows as the steps leave them: the last token is drafted, and goes into no layer."""
        for query, key, value in batch.made():
            yield query[:-1], key[:-1], value[:-1]
