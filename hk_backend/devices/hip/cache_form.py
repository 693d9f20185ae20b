"""Forms of a paged cache that the GPU kernels read in place, and the arguments to locate it.

There are two forms. In *rows*, the channels of a token are contiguous. In *split*, 16 bytes are
kept together: channels of a key, and tokens of a value's channel (8 of 16 bits or 16 of FP8).

The kernels for a cache (fact `keys`, hk_backend/kernels/row_sources.py) follow from its layout
strings, or from its strides, and from the tokens of a block.
"""

from __future__ import annotations

from hk_backend.devices.hip.call import bad
from hk_backend.kernels.row_sources import ANY_PAGES, PAGED, SPLIT, TOKENS, block_reciprocal
from hk_backend.terms.paged_kv import CacheView, PagedKV

BLOCK_TOKENS = 16
"""Tokens of a block are a multiple of this for kernels that find several rows at once."""
PIECE_BYTES = 16
"""Bytes of elements that lie together in a split cache."""
PIECES_BYTES = 2**31
"""Exclusive bound of the bytes that the pieces of 16 tokens span, so that a lane's offset fits."""
NUMBERED_ROWS = 2**32
"""Exclusive bound of a cache's rows, for kernels with row numbers: each lane finds its own row."""
BLOCK_ROWS_BYTES = 2**32
"""Exclusive bound of the bytes from a block's first row to its last, for kernels that multiply a
row's number by the distance of rows in 32 bits."""
VALID = (
    '"B H N D" or "B N H D", or keys as "B H D/x N x" with values as "B H D N" or "B H N/x D x", '
    "x of 16 bytes"
)


def form_of(layouts: tuple[str, str], block_size: int) -> str | None:
    """The kernels' fact `keys` for a cache with these layout strings; None if no kernel reads it.

    Args:
        layouts: layout strings of keys and values (see `PagedKV`).
    """
    key, value = (layout.split() for layout in layouts)
    if all(axes[-1] == "D" and "N" in axes for axes in (key, value)):
        return _form_of_rows(block_size)
    split_keys = "N" in key and f"D/{key[-1]}" in key
    split_values = "D" in value and (value[-1] == "N" or f"N/{value[-1]}" in value)
    return SPLIT if split_keys and split_values else None


def _form_of_rows(block_size: int) -> str:
    if block_size % BLOCK_TOKENS == 0:
        return PAGED
    return TOKENS if block_size == 1 else ANY_PAGES


def form_of_cache(cache: PagedKV) -> str:
    """The kernels' fact `keys` for a cache.

    Raises:
        ValueError: no kernel reads the cache.
    """
    sizes = (cache.key, cache.head_size), (cache.value, cache.value_size)
    if all(_rows(view, size, cache) for view, size in sizes):
        return _form_of_rows(cache.block_size)
    if not (_key_pieces(cache.key, cache) and _value_pieces(cache.value, cache)):
        names = (("keys", cache.key), ("values", cache.value))
        found = " and ".join(
            f"{name} with {view.token_split} tokens and {view.channel_split} channels together, "
            f"strides {view.strides[2:]}"
            for name, view in names
        )
        bad("paged_kv", found, VALID)
    if cache.block_size % BLOCK_TOKENS:
        bad("paged_kv", f"block_size {cache.block_size}", f"a multiple of {BLOCK_TOKENS}")
    return SPLIT


def cache_arguments(cache: PagedKV, keys: str) -> dict[str, int]:
    """Arguments, by name, that say where keys and values lie in a cache, in elements.

    Raises:
        ValueError: kernels with the fact `keys` do not read these strides.
    """
    if keys == SPLIT:
        found = piece_strides(cache)
    else:
        found = row_strides("key", cache.key, cache) | row_strides("value", cache.value, cache)
    if keys == TOKENS:  # here each block is one row
        most = max(cache.head_size, cache.value_size)
        for name in ("key", "value"):
            found[f"{name}_token"] = found[f"{name}_block"] or most
    by_lane = keys in (TOKENS, ANY_PAGES)
    if not by_lane:
        _check_rows(cache, found)
    return {
        **found,
        "block_rows": _block_rows(cache, found) if by_lane else 1,
        "block_reciprocal": block_reciprocal(keys, cache.block_size),
    }


def _check_rows(cache: PagedKV, strides: dict[str, int]) -> None:
    """Checks that the rows of a block are not too far apart, as they are where blocks lie between
    them."""
    most = (BLOCK_ROWS_BYTES - 1) // (cache.dtype.itemsize * max(cache.block_size - 1, 1))
    for name in ("key_token", "value_token"):
        if strides[name] > most:
            valid = f"at most {most} with blocks of {cache.block_size} tokens"
            bad(name, f"a stride of {strides[name]} elements", valid)


def _block_rows(cache: PagedKV, strides: dict[str, int]) -> int:
    """Rows from one block to the next, for kernels where each lane finds its own row."""
    if cache.block_size == 1:
        rows, rest = 1, 0
    else:
        rows, rest = divmod(strides["key_block"], strides["key_token"])
    alike = all(strides[f"key_{of}"] == strides[f"value_{of}"] for of in ("block", "token"))
    if rest or not alike or rows * cache.num_blocks >= NUMBERED_ROWS:
        given = ", ".join(f"{name} {stride}" for name, stride in strides.items())
        valid = (
            f"with blocks of {cache.block_size} tokens: keys and values equally far apart, "
            f"blocks of a whole number of rows, less than {NUMBERED_ROWS} in all"
        )
        bad("paged_kv", f"strides of {given}", valid)
    return rows


def row_strides(name: str, view: CacheView, cache: PagedKV) -> dict[str, int]:
    """Strides of keys or values in rows, in elements, by the name of the kernel's argument."""
    return {**_outer(name, view, cache), f"{name}_token": view.strides[3], f"{name}_piece": 0}


def piece_strides(cache: PagedKV) -> dict[str, int]:
    """Strides of a split cache, in elements, by the name of the kernel's argument.

    Raises:
        ValueError: pieces do not begin at multiples of 16 bytes, or are too far apart.
    """
    key, value, piece = cache.key, cache.value, piece_of(cache)
    by_token = value.token_split < cache.block_size
    if by_token and value.strides[2] % piece:
        found_apart = f"values with {piece} tokens {value.strides[2]} elements apart"
        bad("paged_kv", found_apart, f"a multiple of {piece}")
    found = {
        "key_token": key.strides[3],
        "key_piece": key.strides[4],
        "value_token": value.strides[2] // piece if by_token else 1,
        "value_piece": value.strides[5],
    }
    for name in ("key_token", "key_piece", "value_piece"):
        if found[name] % piece:
            bad("paged_kv", f"{name} {found[name]} elements", f"a multiple of {piece}")
    element = key.tensor.element_size()
    reach = {
        "key": (cache.head_size // piece) * found["key_piece"] + 16 * found["key_token"],
        "value": cache.value_size * found["value_piece"] + 16 * found["value_token"],
    }
    for name, elements in reach.items():
        if not 0 < elements * element < PIECES_BYTES:
            bad("paged_kv", f"{name}s of 16 tokens over {elements} elements", "less than 2 GiB")
    return {**_outer("key", key, cache), **_outer("value", value, cache), **found}


def piece_of(cache: PagedKV) -> int:
    """Number of elements that lie together in a split cache."""
    return PIECE_BYTES // cache.dtype.itemsize


def _rows(view: CacheView, channels: int, cache: PagedKV) -> bool:
    whole = view.token_split >= cache.block_size and view.channel_split >= channels
    return whole and view.strides[5] == 1


def _key_pieces(view: CacheView, cache: PagedKV) -> bool:
    whole_tokens = view.token_split >= cache.block_size
    return whole_tokens and view.channel_split == piece_of(cache) and view.strides[5] == 1


def _value_pieces(view: CacheView, cache: PagedKV) -> bool:
    together = view.token_split == piece_of(cache) or view.token_split >= cache.block_size
    return together and view.channel_split >= cache.value_size and view.strides[3] == 1


def _outer(name: str, view: CacheView, cache: PagedKV) -> dict[str, int]:
    """Strides of blocks and heads; 0 for an axis of one element, whose stride torch leaves open."""
    block, head = view.strides[:2]
    return {
        f"{name}_block": block if cache.num_blocks > 1 else 0,
        f"{name}_head": head if cache.num_kv_heads > 1 else 0,
    }
