"""Faults that a cell of the matrix must show, by name: SGLang's own, and the shared ones."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import pytest
from hk_sglang.attention import prefill
from hk_sglang.attention.batch import Plan, plan_batch
from sglang.srt.model_executor.forward_batch_info import ForwardMode

from tests.integration.shared.e2e.mutations import CACHE_FAULTS

Tell = Callable[[], object]
"""Hears of each call with a fault: one that never ran proves nothing."""


def take_verify_batches(patch: pytest.MonkeyPatch, tell: Tell) -> None:
    """HK takes the batches that verify drafts, too, as if they were chunks of prompts."""

    def taken(batch: Any, *rest: Any) -> Plan | None:
        if not batch.forward_mode.is_target_verify():
            return plan_batch(batch, *rest)
        tell()
        drafts = batch.spec_info.draft_token_num
        chunk = copy(batch)
        chunk.forward_mode = ForwardMode.EXTEND
        chunk.extend_prefix_lens_cpu = batch.seq_lens.tolist()
        chunk.extend_seq_lens_cpu = [drafts] * len(chunk.extend_prefix_lens_cpu)
        chunk.extend_seq_lens = batch.seq_lens.new_full(batch.seq_lens.shape, drafts)
        chunk.seq_lens = batch.seq_lens + drafts
        plan = plan_batch(chunk, *rest)
        assert plan is not None
        return replace(plan, batch=batch)

    patch.setattr(prefill, "plan_batch", taken)


def install(name: str, patch: pytest.MonkeyPatch, tell: Tell) -> None:
    """For as long as `patch` lasts."""
    if name == take_verify_batches.__name__:
        take_verify_batches(patch, tell)
    else:
        CACHE_FAULTS[name](tell).install(patch)
