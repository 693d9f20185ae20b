"""How keys and values may lie for the attention kernels, and in which format: the facts `keys` and
`stored` of their catalogue.

The names, and what a launch tells each, are those of csrc/include/hk/types/row_source.hpp.
"""

from __future__ import annotations

PACKED = "packed"
"""Row after row, without a cache."""
PAGED = "paged"
"""Rows in blocks of multiples of 16 tokens."""
TOKENS = "tokens"
"""Rows in blocks of one token."""
ANY_PAGES = "any_pages"
"""Rows in blocks of any number of tokens."""
SPLIT = "split"
"""Blocks of multiples of 16 tokens with 16 bytes of a key, and of a value's channel, together."""

STORED_BYTES = {"bf16": 2, "f16": 2, "e4m3": 1, "e5m2": 1}
"""Of an element of keys and values, by the fact `stored`: the kernel's dtype or OCP FP8."""


def group_arguments(heads: int, kv_heads: int) -> dict[str, int]:
    """What a kernel is told of the query heads of a KV head, by the struct's fields."""
    group = heads // max(kv_heads, 1)
    return {"group": group, "group_reciprocal": -(-(2**31) // max(group, 1))}


def block_reciprocal(keys: str, block_size: int) -> int:
    """What a kernel divides by `block_size` with: of multiples of 16, 2^31 over their sixteenth,
    rounded up; of any number 2^32 - 1, rounded down; 0 where nothing is divided."""
    if keys == ANY_PAGES:
        return (2**32 - 1) // block_size
    return -(-(2**31) // (block_size // 16)) if keys in (PAGED, SPLIT) else 0
