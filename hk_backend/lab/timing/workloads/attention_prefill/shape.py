"""Shapes of attention_prefill: requests of given lengths, packed or in a paged cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hk_backend.kernels.attention_plan import LaunchSizes
from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.masks import ALL_KEYS, GROUPED, PART, WINDOW_PART, WINDOWED
from hk_backend.kernels.row_sources import ANY_PAGES, PACKED, TOKENS

ELEMENT = 2  # bytes of an element of queries and output


@dataclass(frozen=True)
class Shape:
    """Requests; request i has `queries[i]` new tokens at the end of `keys[i]` tokens.

    Raises `ValueError` for lengths, heads, a block size or a window that no kernel takes.
    """

    queries: Sequence[int]
    keys: Sequence[int]
    heads: int
    kv_heads: int
    causal: bool = True
    block_size: int = 0
    """Tokens of a block of the cache; 0: the fewest that the kernel supports."""
    window: int = 0
    """Number of keys, up to its own, that a query sees; 0: all of them."""
    parts: int = 1
    """Number of parts that the keys are cut into, for a kernel that computes partial results."""

    def __post_init__(self) -> None:
        if not self.queries or len(self.queries) != len(self.keys):
            raise ValueError(
                f"queries: {len(self.queries)} lengths, keys: {len(self.keys)}; valid: as many, "
                "one or more"
            )
        pairs = zip(self.queries, self.keys, strict=True)
        if any(not 1 <= queries <= keys for queries, keys in pairs):
            raise ValueError("queries, keys: valid: one query or more, and as many keys or more")
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads}/{self.kv_heads}; valid: a multiple of KV heads")
        if self.parts < 1:
            raise ValueError(f"parts {self.parts}; valid: 1 or more")
        if self.block_size < 0:
            raise ValueError(f"block_size {self.block_size}; valid: 1 or more")
        if self.window < 0 or (self.window and not self.causal):
            raise ValueError(f"window {self.window}; valid: 1 or more, causal")

    def flops(self, head_size: int) -> float:
        """Useful FLOPs: a causal row counts the keys that it sees, its own key by half."""

        def seen(rows: int) -> float:
            """Pairs of a query and a key it sees, for `rows` queries from the first token on."""
            growing = min(rows, self.window or rows)
            return growing * (rows - growing / 2)

        pairs = sum(
            seen(k) - seen(k - q) if self.causal else q * k
            for q, k in zip(self.queries, self.keys, strict=True)
        )
        return 4.0 * self.heads * head_size * pairs

    def bytes(self, head_size: int, stored: int = ELEMENT) -> float:
        """Bytes of queries, keys, values and output, once each.

        `stored`: bytes of an element of keys and values.
        """
        seen = (
            min(k, q + self.window - 1) if self.window else k
            for q, k in zip(self.queries, self.keys, strict=True)
        )
        rows, stored_rows = self.heads * sum(self.queries), self.kv_heads * sum(seen)
        return 2.0 * head_size * (ELEMENT * rows + stored * stored_rows)


def launch_sizes(entry: KernelEntry, shape: Shape) -> LaunchSizes:
    """The sizes of a launch for the attention planner."""
    of_heads = shape.heads, shape.kv_heads, entry.tile.depth
    requests, grouped = len(shape.queries), entry.facts["mask"] in GROUPED
    window = shape.window or ALL_KEYS
    return LaunchSizes(sum(shape.queries), requests, max(shape.keys), *of_heads, grouped, window)


def block_size_for(keys: str, block_size: int) -> int:
    """The block size to model a kernel with: `block_size`, or a default where it is 0.

    `keys` is the kernel's fact about where keys lie; for packed keys the block size is 0.

    Raises:
        ValueError: the kernel does not read blocks of this size.
    """
    if keys == PACKED:
        return 0
    if keys == TOKENS and block_size > 1:
        raise ValueError(f"block_size {block_size}; valid: 1")
    if keys not in (TOKENS, ANY_PAGES) and block_size % 16:
        raise ValueError(f"block_size {block_size}; valid: a multiple of 16")
    return block_size or (1 if keys == TOKENS else 16)


def small(entry: KernelEntry, keys: int = 1024) -> Shape:
    """One request with one head, whose queries fill the rows of one workgroup."""
    return Shape([entry.tile.rows], [keys], 1, 1, causal=False)


def batch(size: int, tokens: int, heads: int, kv_heads: int, causal: bool) -> Shape:
    """A batch of `size` requests with `tokens` new tokens each and no cached tokens."""
    return Shape([tokens] * size, [tokens] * size, heads, kv_heads, causal)


STANDARD = {
    "b16 64/8 n4096 causal": batch(16, 4096, 64, 8, True),
    "b16 64/8 n1024 causal": batch(16, 1024, 64, 8, True),
    "b16 64/8 n4096 full": batch(16, 4096, 64, 8, False),
}
"""Shapes, by name, that kernels over whole keys have modelled figures for."""

IN_WINDOWS: Mapping[str, Shape] = {
    "b16 64/8 n4096 causal": batch(16, 4096, 64, 8, True),
    "b16 64/8 n4096 causal window 1024": replace(batch(16, 4096, 64, 8, True), window=1024),
}
"""Shapes of attention kernels with windows and sinks that the catalogue has figures for."""

EXTEND = {
    "8/1 n200 cached 8000 causal, 16 parts": Shape([200], [8200], heads=8, kv_heads=1, parts=16),
}
"""Shapes of attention kernels whose workgroups each read a part of the keys."""

EXTEND_IN_WINDOW = {
    "8/1 n200 cached 8000 causal window 4096, 8 parts": Shape(
        [200], [8200], heads=8, kv_heads=1, window=4096, parts=8
    ),
}
"""Shapes of attention kernels for parts of the keys, with windows."""


def shapes_of(entry: KernelEntry) -> Mapping[str, Shape]:
    """Shapes, by name, that the catalogue has modelled figures of a kernel for."""
    mask = entry.facts["mask"]
    if mask == PART:
        return EXTEND
    if mask == WINDOW_PART:
        return EXTEND_IN_WINDOW
    return IN_WINDOWS if mask in WINDOWED else STANDARD
