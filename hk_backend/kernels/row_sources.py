"""Memory layouts and formats of keys and values: the attention kernels' facts `keys`, `stored`.

The names, and the arguments of each layout, match csrc/include/hk/types/row_source.hpp.
"""

from __future__ import annotations

PACKED = "packed"
"""Rows lie one after another, without a cache."""
PAGED = "paged"
"""Rows lie in blocks of a multiple of 16 tokens."""
TOKENS = "tokens"
"""Rows lie in blocks of one token."""
ANY_PAGES = "any_pages"
"""Rows lie in blocks of any number of tokens."""
SPLIT = "split"
"""Blocks of a multiple of 16 tokens keep 16 bytes of a key together, and of a value's channel."""

STORED_BYTES = {"bf16": 2, "f16": 2, "e4m3": 1}
"""Bytes of an element of keys and values, by the fact `stored`: the kernel's dtype or OCP FP8."""


def group_arguments(heads: int, kv_heads: int) -> dict[str, int]:
    """Kernel arguments for the query heads of a KV head, by the struct's fields."""
    group = heads // max(kv_heads, 1)
    return {"group": group, "group_reciprocal": -(-(2**31) // max(group, 1))}


def block_reciprocal(keys: str, block_size: int) -> int:
    """Constant by which a kernel divides by `block_size` with a multiplication.

    Blocks of a multiple of 16 tokens: 2^31 over a sixteenth of the size, rounded up. Blocks of any
    size: 2^32 - 1 over the size, rounded down. Layouts that need no division: 0.
    """
    if keys == ANY_PAGES:
        return (2**32 - 1) // block_size
    return -(-(2**31) // (block_size // 16)) if keys in (PAGED, SPLIT) else 0
