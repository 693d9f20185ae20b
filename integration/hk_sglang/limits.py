"""Sizes that an SGLang server computes at once, by its arguments."""

from __future__ import annotations

from sglang.srt.runtime_context import get_schedule


def batch_tokens() -> int:
    """Most tokens that one step prefills."""
    schedule = get_schedule()
    limits = (
        schedule.chunked_prefill_size,  # -1: prompts are not cut
        schedule.max_prefill_tokens,
        schedule.max_total_tokens,
    )
    return min(int(limit) for limit in limits if limit is not None and limit > 0)


def running_requests(at_most: int) -> int:
    """Most requests that one step decodes; `at_most` if the setting is larger or missing."""
    return min(at_most, get_schedule().max_running_requests or at_most)
