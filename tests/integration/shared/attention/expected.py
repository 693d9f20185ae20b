"""The reference for an engine's attention, row by row, with the bounds of tests/ops/oracle.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from tests.ops import oracle

RowTensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Queries `[n, heads, D]`; all keys and values `[length, kv_heads, D]`, of which the last n are the
queries' own."""
MASK: dict[str, Any] = {
    "causal": True,
    "scale": None,
    "sliding_window": None,
    "logits_soft_cap": None,
    "alibi_slopes": None,
    "sinks": None,
    "k_scale": 1.0,
    "v_scale": 1.0,
}


def expected_rows(rows: Iterable[RowTensors], **mask: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The exact output `[tokens, heads, D]`, and the bound on each element's error.

    The bound allows float32 arithmetic that rounds softmax weights and outputs to the rows' dtype.
    """
    found = [_expected(*row, **mask) for row in rows]
    return torch.cat([each.out for each in found]), torch.cat([each.out_bound for each in found])


def _expected(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **mask: Any
) -> oracle.Expected:
    call = {"query": query, "key": key, "value": value, **MASK, **mask}
    call["query_start_loc"] = torch.tensor([0, len(query)])
    call["key_start_loc"] = torch.tensor([0, len(key)])
    return oracle.expected(call, query.dtype)


def check_rows(found: torch.Tensor, rows: Iterable[RowTensors], **mask: Any) -> None:
    """Hold that `found` `[tokens, heads, D]` equals the reference for `rows`, within the bounds."""
    exact, bound = expected_rows(rows, **mask)
    oracle.close("out", found, exact, bound)
