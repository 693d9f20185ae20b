"""The host kernels (csrc/cpu/bindings.cpp): addresses, sizes and strides, no tensors."""

from collections.abc import Sequence
from typing import ClassVar

class DType:
    __members__: ClassVar[dict[str, DType]]

class Format:
    __members__: ClassVar[dict[str, Format]]

class Activations:
    __members__: ClassVar[dict[str, Activations]]

def available_isas() -> list[str]: ...
def left_out_isas() -> list[str]: ...
def why_no_amx() -> str: ...
def use_dot_products(use: bool) -> bool: ...

class AttentionCall:
    def __init__(
        self,
        isa: str,
        split_elements: int,
        dtype: DType,
        kv_dtype: DType,
        heads: Sequence[int],
        query_strides: Sequence[int],
        key_layout: Sequence[int],
        value_layout: Sequence[int],
        blocks: Sequence[int],
        vectors: Sequence[int],
        scales: Sequence[int],
        scale_strides: Sequence[int],
        scale: float,
        value_factor: float,
        causal: bool,
        sliding_window: int,
        logits_soft_cap: float,
        out_strides: Sequence[int],
        lse_strides: Sequence[int],
        /,
    ) -> None: ...
    def run(
        self,
        threads: int,
        tensors: Sequence[int],
        rows: Sequence[int],
        counts: Sequence[int],
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
def packed_bytes(isa: str, format: Format, n: int, k: int, /) -> int: ...
def pack_weight(
    isa: str,
    threads: int,
    format: Format,
    sizes: Sequence[int],
    codes: int,
    code_strides: Sequence[int],
    scales: int,
    scale_strides: Sequence[int],
    out: int,
    factors: int,
    /,
) -> None: ...
def linear(
    isa: str,
    threads: int,
    format: Format,
    activations: Activations,
    x_format: Format,
    rotation: int,
    sizes: Sequence[int],
    x: int,
    x_dtype: DType,
    x_row: int,
    weight: int,
    factors: int,
    block_scales: int,
    input_scale: int,
    bias: int,
    bias_dtype: DType,
    out: int,
    out_dtype: DType,
    out_row: int,
    /,
) -> None: ...
def look_up(
    isa: str,
    threads: int,
    format: Format,
    rotation: int,
    sizes: Sequence[int],
    rows: int,
    weight: int,
    factors: int,
    block_scales: int,
    out: int,
    out_dtype: DType,
    /,
) -> None: ...
def quantize_fp8(
    isa: str,
    threads: int,
    format: Format,
    sizes: Sequence[int],
    x: int,
    x_dtype: DType,
    x_row: int,
    group: Sequence[int],
    divide: bool,
    dynamic: bool,
    codes: int,
    scales: int,
    /,
) -> None: ...
def quantize_mx(
    isa: str,
    threads: int,
    format: Format,
    sizes: Sequence[int],
    x: int,
    x_dtype: DType,
    x_row: int,
    rotation: int,
    round_scale_even: bool,
    codes: int,
    scales: int,
    /,
) -> None: ...
def read_bytes(isa: str, threads: int, address: int, num_bytes: int) -> None: ...
def multiply_add(isa: str, threads: int, count: int) -> None: ...
def expand_weight(
    isa: str,
    threads: int,
    format: Format,
    n: int,
    k: int,
    address: int,
    repeats: int,
) -> None: ...
