"""Parses the sizes of an attention launch, as `--shape` has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.masks import PARTS, WINDOWED
from hk_backend.kernels.row_sources import PACKED
from hk_backend.lab.timing.sizes import LONGEST, MOST, ShapeError, number, numbers
from hk_backend.lab.timing.workloads.attention_prefill.shape import Shape, block_size_for

SIZES = (
    *("tokens", "heads", "batch", "cached", "keys", "block_size", "parts", "causal", "window"),
)
"""Names of the sizes: `keys` counts the cached ones, too, and `parts` share them."""
WORKGROUPS = 1 << 20
"""Most workgroups of a launch."""


def parse(entry: KernelEntry, items: Mapping[str, str]) -> tuple[Shape, str]:
    """The shape of these sizes, and the same in words. Raises `ValueError`."""
    for name, form in (("tokens", "tokens=4096"), ("heads", "heads=64/8")):
        if name not in items:
            raise ShapeError(f"{name} is missing; valid: {name} as in {form}")
    if "keys" in items and "cached" in items:
        raise ShapeError("keys and cached say the same; valid: one of them")
    if "block_size" in items and entry.facts["keys"] == PACKED:
        raise ShapeError(f"block_size: {entry.name} reads packed keys; valid: with a paged kernel")
    heads, kv_heads = heads_of(items["heads"])
    tokens = numbers(items, "tokens", LONGEST)
    keys = _keys(items, tokens)
    batch = number(items, "batch", MOST, default=1)
    given = number(items, "block_size", LONGEST, default=0)
    block_size = block_size_for(str(entry.facts["keys"]), given)
    causal = "causal" in items
    window = number(items, "window", LONGEST, default=0)
    if window and entry.facts["mask"] not in WINDOWED:
        masks = " or ".join(WINDOWED)
        raise ShapeError(f"window: {entry.name} has none; valid: with a kernel of the mask {masks}")
    parts = number(items, "parts", MOST, default=1)
    if parts > 1 and entry.facts["mask"] not in PARTS:
        masks = " or ".join(PARTS)
        raise ShapeError(f"parts: {entry.name} has none; valid: with a kernel of the mask {masks}")
    workgroups = (batch * sum(-(-own // entry.tile.rows) for own in tokens)) * heads * parts
    if workgroups > WORKGROUPS:
        raise ShapeError(f"{workgroups:,} workgroups; valid: up to {WORKGROUPS:,}")
    sizes = tokens * batch, keys * batch, heads, kv_heads
    shape = Shape(*sizes, causal, block_size, window, parts)
    words = [
        f"{len(shape.queries)} request{'s' * (len(shape.queries) > 1)}",
        f"heads {heads}/{kv_heads}",
        f"{_list(tokens)} tokens",
        *([f"{_list(keys)} keys"] if keys != tokens else []),
        *([f"blocks of {block_size}"] if entry.facts["keys"] != PACKED else []),
        *([f"{parts} parts"] if parts > 1 else []),
        "causal" if causal else "not causal",
        *([f"window {window}"] if window else []),
    ]
    return shape, ", ".join(words)


def heads_of(text: str) -> tuple[int, int]:
    numbers = text.split("/")
    if len(numbers) != 2 or not all(n.isdecimal() and 1 <= int(n) <= MOST for n in numbers):
        raise ShapeError(f"heads={text}; valid: query heads/KV heads, as in 64/8, up to {MOST}")
    return int(numbers[0]), int(numbers[1])


def _keys(items: Mapping[str, str], tokens: Sequence[int]) -> list[int]:
    """Number of keys of each request: its new tokens and its cached tokens."""
    name = "keys" if "keys" in items else "cached"
    if name not in items:
        return list(tokens)
    given = numbers(items, name, LONGEST, least=0)
    if len(given) not in {1, len(tokens)}:
        raise ShapeError(
            f"{name}={items[name]}: {len(given)} numbers for {len(tokens)} requests; valid: one "
            "for all, or one each"
        )
    given = given * len(tokens) if len(given) == 1 else given
    if name == "keys":
        return given
    return [own + cached for own, cached in zip(tokens, given, strict=True)]


def _list(numbers: Sequence[int]) -> str:
    same = len(set(numbers)) == 1
    return str(numbers[0]) if same else "+".join(map(str, numbers))
