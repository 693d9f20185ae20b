"""The host kernels (csrc/cpu/bindings.cpp): addresses, sizes and strides, no tensors."""

from collections.abc import Sequence
from typing import ClassVar

class DType:
    __members__: ClassVar[dict[str, DType]]

def available_isas() -> list[str]: ...
def attention_prefill(
    isa: str,
    threads: int,
    dtype: DType,
    kv_dtype: DType,
    sizes: Sequence[int],
    query: int,
    query_strides: Sequence[int],
    key: int,
    key_layout: Sequence[int],
    value: int,
    value_layout: Sequence[int],
    query_start_loc: int,
    key_start_loc: int,
    seq_lens: int,
    block_table: int,
    blocks: Sequence[int],
    sinks: int,
    alibi_slopes: int,
    k_scale: int,
    k_scale_stride: int,
    v_scale: int,
    v_scale_stride: int,
    scale: float,
    value_factor: float,
    causal: bool,
    sliding_window: int,
    logits_soft_cap: float,
    out: int,
    out_strides: Sequence[int],
    lse: int,
    lse_strides: Sequence[int],
    /,
) -> None: ...
def merge_attention(
    isa: str,
    threads: int,
    dtype: DType,
    sizes: Sequence[int],
    output_a: int,
    a_strides: Sequence[int],
    lse_a: int,
    lse_a_strides: Sequence[int],
    output_b: int,
    b_strides: Sequence[int],
    lse_b: int,
    lse_b_strides: Sequence[int],
    out: int,
    out_strides: Sequence[int],
    lse: int,
    lse_strides: Sequence[int],
    /,
) -> None: ...
