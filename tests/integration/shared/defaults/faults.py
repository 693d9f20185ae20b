"""Faults in how HK reads a cache, below both engines' plugins: each must turn a cell red.

A fault comes in between a plugin and its layer's calls, after the proof of the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hk_backend.engine.attention import AttentionRoute, LayerTensors
from hk_backend.engine.rows import RowSplit, split_rows
from hk_backend.ops import PagedKV
from hk_backend.terms.attention_step import AttentionStep

Arguments = dict[str, Any]


class Fault:
    """A fault that changes nothing yet: subclasses change `step` or `arguments`.

    `tell` hears of each call with extends: a fault that was never called proves nothing.
    """

    def __init__(self, tell: Callable[[], object]) -> None:
        self._tell = tell

    def step(self, step: AttentionStep) -> AttentionStep:
        return step

    def arguments(self, arguments: Arguments) -> Arguments:
        return arguments

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Put the fault in place for as long as `patch` lasts."""
        healthy = AttentionRoute.compute

        def compute(
            route: AttentionRoute,
            step: AttentionStep,
            paged: bool,
            tensors: LayerTensors,
            arguments: Callable[[], Arguments],
        ) -> str:
            if not paged:
                return healthy(route, step, paged, tensors, arguments)
            self._tell()
            faulty = self.arguments(arguments())
            cache = faulty["paged_kv"]
            tensors = (tensors[0], cache.key.tensor, cache.value.tensor, tensors[3])
            return healthy(route, self.step(step), paged, tensors, lambda: dict(faulty))

        patch.setattr(AttentionRoute, "compute", compute)


class PageOffByOne(Fault):
    """Read each page of a request as the one behind it."""

    def step(self, step: AttentionStep) -> AttentionStep:
        assert step.block_table is not None
        return step.with_block_table(step.block_table.roll(-1, 1).contiguous())


class ValuesAsRows(Fault):
    """Read a channel's values in a split cache, which lie side by side, as a token's channels."""

    def arguments(self, arguments: Arguments) -> Arguments:
        cache: PagedKV = arguments["paged_kv"]
        tokens, channels = cache.block_size, cache.head_size
        blocks_and_heads = (cache.num_blocks, cache.num_kv_heads)
        as_rows = cache.value.tensor.reshape(*blocks_and_heads, tokens, channels)
        split = as_rows.transpose(2, 3).contiguous()
        value = PagedKV.from_views(split, "B H D N", split, "B H D N").value
        return {**arguments, "paged_kv": replace(cache, value=value)}


class WrongScale(Fault):
    """Use a wrong scale of an FP8 cache: another head's, or the keys' for the values'."""

    def arguments(self, arguments: Arguments) -> Arguments:
        scales = [arguments[name] for name in ("k_scale", "v_scale")]
        if scales[0].numel() == 1:
            k_scale, v_scale = reversed(scales)
        else:
            k_scale, v_scale = (scale.flip(0) for scale in scales)
        return {**arguments, "k_scale": k_scale, "v_scale": v_scale}


def take_speculative_rows(patch: pytest.MonkeyPatch, tell: Callable[[], object]) -> None:
    """Let HK take the rows that verify drafts, too."""

    def taken(*arguments: Any, **named: Any) -> RowSplit:
        tell()
        query_start_loc, seq_lens, is_prefilling, _drafts, *rest = arguments
        assert not named
        return split_rows(query_start_loc, seq_lens, is_prefilling | True, 0, *rest)

    patch.setattr("hk_backend.engine.batch_plan.split_rows", taken)
