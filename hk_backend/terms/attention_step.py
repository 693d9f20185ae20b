"""The rows of one engine step whose attention HK computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from hk_backend.terms.checks import bad


@dataclass(frozen=True, slots=True, eq=False)
class AttentionStep:
    """The rows of a step, planned once for all layers by `AttentionStep.of`.

    Fresh keys are packed like the queries. The tensors stay alive as long as the step.

    Args:
        query_start_loc: int32 `[requests + 1]`, contiguous.
        num_tokens: end of the last request.
        seq_lens: int32 `[requests]`, contiguous, if keys are read from a cache.
        block_table: int32 `[requests, max_blocks]` with contiguous rows, if keys are read from a
            cache.
        longest: the largest of `seq_lens`, if the host knows it.
        gathered: whether the tokens are contiguous copies, rather than in the engine's tensors,
            which may have other strides.
        max_query_len: most query tokens of a request, for decode; None: the rows are prefill.
        derived: what a device makes of the rows once per step; each device has keys of its own.
    """

    query_start_loc: torch.Tensor
    num_tokens: int
    seq_lens: torch.Tensor | None = None
    block_table: torch.Tensor | None = None
    longest: int | None = None
    gathered: bool = False
    max_query_len: int | None = None
    derived: dict[Any, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        query_start_loc: torch.Tensor,
        num_tokens: int,
        seq_lens: torch.Tensor | None = None,
        block_table: torch.Tensor | None = None,
        longest: int | None = None,
        gathered: bool = False,
        max_query_len: int | None = None,
    ) -> AttentionStep:
        """Checks the rows, and copies what is not contiguous. Waits for nothing.

        Raises:
            ValueError: names the argument, its value and what would be valid.
        """
        if query_start_loc.dim() != 1 or not query_start_loc.shape[0]:
            bad("query_start_loc", tuple(query_start_loc.shape), "the shape [requests + 1]")
        requests = query_start_loc.shape[0] - 1
        if seq_lens is not None and seq_lens.shape != (requests,):
            bad("seq_lens", tuple(seq_lens.shape), f"the shape [{requests}]")
        if block_table is not None:
            if block_table.dim() != 2 or block_table.shape[0] != requests:
                bad("block_table", tuple(block_table.shape), f"the shape [{requests}, max_blocks]")
            if block_table.shape[1] > 1 and block_table.stride(1) != 1:
                block_table = block_table.contiguous()
        seq_lens = None if seq_lens is None else seq_lens.contiguous()
        starts = query_start_loc.contiguous()
        known = seq_lens, block_table, longest, gathered, max_query_len
        step = cls(starts, num_tokens, *known)
        for name, tensor in step.tensors().items():
            if tensor.dtype != torch.int32:
                bad(name, tensor.dtype, "int32")
            if tensor.device != query_start_loc.device:
                bad(name, f"a tensor on {tensor.device}", f"one on {query_start_loc.device}")
        return step

    @property
    def num_requests(self) -> int:
        return self.query_start_loc.shape[0] - 1

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors that are not None, by field."""
        names = ("query_start_loc", "seq_lens", "block_table")
        named = ((name, getattr(self, name)) for name in names)
        return {name: tensor for name, tensor in named if tensor is not None}

    def with_block_table(self, block_table: torch.Tensor) -> AttentionStep:
        """The same rows in other cache blocks."""
        rows = self.query_start_loc, self.num_tokens, self.seq_lens, block_table
        return self.of(*rows, self.longest, self.gathered, self.max_query_len)

    def rows(self, paged: bool) -> dict[str, Any]:
        """The rows as arguments of `ops.attention_prefill`, or of `ops.attention_decode`."""
        rows: dict[str, Any] = {"query_start_loc": self.query_start_loc}
        if paged:
            rows |= {"seq_lens": self.seq_lens, "block_table": self.block_table}
        if self.max_query_len is not None:
            rows["max_query_len"] = self.max_query_len
        elif paged:
            rows["max_seq_len"] = self.longest
        return rows
