"""Requests to an operator, and to the device below it, before any tensor exists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from hk_backend.terms.weight_format import FORMATS, Format


@dataclass(frozen=True, slots=True)
class AttentionRequest:
    """Facts that decide whether a layer's prefill attention is served.

    Args:
        kv_dtype: dtype of the keys and values that are read (the cache's, if paged).
        head_size_v: channels of a value; None: `head_size`, the channels of a key.
        cache_layouts: layout strings of a paged cache's keys and values (see `PagedKV`), if known.
    """

    operator: ClassVar[str] = "attention_prefill"

    device_type: str
    dtype: torch.dtype
    num_heads: int
    num_kv_heads: int
    head_size: int
    kv_dtype: torch.dtype | None = None
    head_size_v: int | None = None
    paged: bool = False
    block_size: int | None = None
    cache_layouts: tuple[str, str] | None = None
    causal: bool = True
    sliding_window: int | None = None
    logits_soft_cap: float | None = None
    has_sinks: bool = False
    has_alibi: bool = False

    @property
    def value_size(self) -> int:
        """Number of channels of a value."""
        return self.head_size if self.head_size_v is None else self.head_size_v


@dataclass(frozen=True, slots=True)
class DecodeRequest(AttentionRequest):
    """Facts that decide whether a layer's decode attention is served, over a paged cache.

    Args:
        max_query_len: most query tokens of a request.
        keys: keys of each request of a batch whose time is asked for; 0: unknown.
    """

    operator: ClassVar[str] = "attention_decode"

    paged: bool = True
    max_query_len: int = 1
    keys: int = 0


@dataclass(frozen=True, slots=True)
class LinearRequest:
    """Facts that decide whether a linear layer is served.

    Args:
        dtype: dtype of x.
        format, activations, rotation: see `pack_weight`.
        scale_kind: scales of the weight: "none" (bf16, fp16, fp32), "tensor", "channel", "block"
            (128 x 128) or "mx". None: any kind but "block".
        out_dtype: dtype of the result; None: that of x.
        bias_dtype: dtype of the bias; None: there is no bias.
    """

    operator: ClassVar[str] = "linear"

    device_type: str
    dtype: torch.dtype
    format: str
    n: int
    k: int
    activations: str = "none"
    scale_kind: str | None = None
    out_dtype: torch.dtype | None = None
    bias_dtype: torch.dtype | None = None
    rotation: int = 0

    @property
    def x_format(self) -> Format | None:
        """The format that x is rounded to; None: x is not rounded."""
        return FORMATS[self.format].of_activations(self.activations)
