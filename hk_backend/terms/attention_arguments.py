"""The arguments of the attention operators.

`ops` makes them. They are defined here because devices, reference and shadow check take the whole
object, and these rooms are below `ops`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from hk_backend.terms.paged_kv import PagedKV


@dataclass(frozen=True, slots=True, eq=False)
class AttentionArguments:
    """A call of `ops.attention_prefill`, whose documentation describes each argument.

    Whoever makes one for a device checks the arguments first. `out` and `lse` are written; `lse` is
    float32 `[num_heads, tokens]`, initially minus infinity, or None if it is not needed.
    """

    operator: ClassVar[str] = "attention_prefill"
    written: ClassVar[tuple[str, ...]] = ("out", "lse")

    query: torch.Tensor
    query_start_loc: torch.Tensor
    out: torch.Tensor
    lse: torch.Tensor | None = None
    key: torch.Tensor | None = None
    value: torch.Tensor | None = None
    key_start_loc: torch.Tensor | None = None
    paged_kv: PagedKV | None = None
    block_table: torch.Tensor | None = None
    seq_lens: torch.Tensor | None = None
    scale: float | None = None
    causal: bool = True
    sliding_window: int | None = None
    logits_soft_cap: float | None = None
    sinks: torch.Tensor | None = None
    alibi_slopes: torch.Tensor | None = None
    k_scale: float | torch.Tensor = 1.0
    v_scale: float | torch.Tensor = 1.0
    max_seq_len: int | None = None

    @property
    def value_size(self) -> int:
        """Channels of a value, and of a row of `out`."""
        return self.out.shape[2]

    def stored(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The tensors that hold keys and values: the packed ones, or those of the cache."""
        if self.paged_kv is not None:
            return self.paged_kv.key.tensor, self.paged_kv.value.tensor
        assert self.key is not None
        assert self.value is not None
        return self.key, self.value

    def factors(self) -> tuple[float, float, torch.Tensor | None, torch.Tensor | None]:
        """Factors of the scores and of the output, and the tensor scales of keys and of values.

        The two factors include every scale that is a number. A tensor scale is None if there is
        none.
        """
        scale = self.query.shape[2] ** -0.5 if self.scale is None else float(self.scale)
        k_scale, v_scale, value_factor = self.k_scale, self.v_scale, 1.0
        k_tensor = v_tensor = None
        # test for a float first, as the test for a tensor takes longer
        if isinstance(k_scale, float) or not isinstance(k_scale, torch.Tensor):
            scale *= k_scale
        else:
            k_tensor = k_scale
        if isinstance(v_scale, float) or not isinstance(v_scale, torch.Tensor):
            value_factor = float(v_scale)
        else:
            v_tensor = v_scale
        return scale, value_factor, k_tensor, v_tensor


@dataclass(frozen=True, slots=True, eq=False)
class DecodeArguments(AttentionArguments):
    """A call of `ops.attention_decode`, whose documentation describes each argument."""

    operator: ClassVar[str] = "attention_decode"

    max_query_len: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class MergeArguments:
    """A call of `ops.merge_attention`. `out` and `lse` are written."""

    operator: ClassVar[str] = "merge_attention"
    written: ClassVar[tuple[str, ...]] = ("out", "lse")

    output_a: torch.Tensor
    lse_a: torch.Tensor
    output_b: torch.Tensor
    lse_b: torch.Tensor
    out: torch.Tensor
    lse: torch.Tensor
