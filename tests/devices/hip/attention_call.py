"""Small attention calls, in the forms of the GPU kernels and of engines."""

from __future__ import annotations

from typing import Any

import torch

from hk_backend.devices.hip import attention_launch
from hk_backend.devices.hip.call import KernelCall
from hk_backend.devices.hip.prepared_attention import PreparedAttention
from hk_backend.kernels import catalogue
from hk_backend.terms.attention_arguments import AttentionArguments
from hk_backend.terms.attention_step import AttentionStep
from tests.devices.hip.device import OnTheHost
from tests.ops.cases import Case, arguments, make
from tests.ops.oracle import close, expected_with, nan

BF16 = torch.bfloat16

SPLIT_BY_CHANNEL = ("B H D/x N x", "B H D N")


def prepared(**changes: Any) -> KernelCall:
    """A small call, prepared for the GPU kernels, with some arguments replaced."""
    call = make(Case(((5, 5), (7, 7)), num_heads=4, num_kv_heads=2, dtype=torch.bfloat16))
    of = arguments(call, **{"scale": 0.5, "v_scale": 2.0, **changes})
    return attention_launch.prepare(of, catalogue("gfx950"))


def paged(
    layout: str, block_size: int = 16, kv_dtype: torch.dtype = torch.bfloat16
) -> dict[str, Any]:
    """Arguments that put keys and values into a cache of `layout` (tests/ops/layouts.py)."""
    lengths = ((5, 40), (7, 7))
    call = make(Case(lengths, 4, 2, 64, torch.bfloat16, kv_dtype, layout, block_size))
    names = ("query", "paged_kv", "seq_lens", "block_table")
    return {"key": None, "value": None, **{name: call[name] for name in names}}


class Call:
    """A case in an engine's form: rows, a layer's tensors, and the tensor for the result."""

    def __init__(self, case: Case) -> None:
        self.made = make(case)
        self.out = nan(*self.made["query"].shape, dtype=BF16)
        cache = self.made.get("paged_kv")
        keys = (cache.key.tensor, cache.value.tensor) if cache else ()
        self.tensors = (
            self.made["query"],
            *(keys or (self.made["key"], self.made["value"])),
            self.out,
        )
        self.num_tokens = sum(queries for queries, _ in case.lengths)

    def step(self, longest: int | None = None) -> AttentionStep:
        rows = (self.made.get("seq_lens"), self.made.get("block_table"), longest)
        return AttentionStep.of(self.made["query_start_loc"], self.num_tokens, *rows)

    def prepared(self, device: OnTheHost) -> PreparedAttention:
        made = device.prepare(AttentionArguments(**self.made, out=self.out), self.tensors)
        assert isinstance(made, PreparedAttention)
        return made

    def check(self, lse: torch.Tensor | None = None, in_parts: bool = False) -> None:
        """Compares `out` and `lse` with the reference. Rows without a request must still hold
        NaN."""
        want = expected_with(self.made, BF16, in_parts)
        owned = want.owned
        close("out", self.out[owned], want.out[owned], want.out_bound[owned])
        assert self.out[~owned].isnan().all()
        if lse is not None:
            close("lse", lse.T[owned], want.lse.T[owned], want.lse_bound.T[owned])
            assert lse[:, ~owned].isnan().all()
