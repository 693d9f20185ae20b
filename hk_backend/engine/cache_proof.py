"""Proof, on the running engine, that HK reads a cache as the engine writes it.

A cache's form is knowledge about another project's kernels; if one changes, reading by the old
form is silently wrong. So before a cache is first read, one block that no request ever owns is
written through the engine's own writer and read back through HK's description.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from hk_backend.ops import PagedKV
from hk_backend.reference import gather_paged

SPARE_BLOCK = 0
"""The block that vLLM and SGLang keep for padding."""
Write = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]
"""The engine's writer: keys and values `[tokens, num_kv_heads, head_size]`, slots `[tokens]`."""


class UnknownCacheForm(ValueError):
    """The cache does not look as its parent's kernels expect; the message says what differs."""


def prove(
    cache: PagedKV,
    dtype: torch.dtype,
    scales: tuple[torch.Tensor | float, torch.Tensor | float],
    memory: Sequence[torch.Tensor],
    write: Write,
    form: Hashable,
) -> None:
    """Write the spare block, read it back, restore it; once per process and `form`.

    Args:
        cache: HK's description.
        dtype: of the keys and values that the model projects.
        scales: what an FP8 cache's keys and values are multiplied by.
        memory: the spare block's own elements, in one tensor or several.

    Raises:
        UnknownCacheForm: what was written is not what is read.
    """
    if form in _proven:
        return
    device, tokens = cache.key.tensor.device, cache.block_size
    shape = (tokens, cache.num_kv_heads, cache.head_size)
    generator = torch.Generator().manual_seed(0)
    # in units of the scales, whatever they are: FP8 holds neither much more nor much less
    key, value = (
        (torch.randn(shape, generator=generator).to(device) * scale).to(dtype) for scale in scales
    )
    before = [part.clone() for part in memory]
    slots = torch.arange(tokens, device=device) + SPARE_BLOCK * tokens
    try:
        write(key.clone(), value.clone(), slots)  # SGLang's writer scales in place
        with torch.device(device):
            block_table = torch.tensor([SPARE_BLOCK])
            found_key = gather_paged(cache.key, cache, block_table, tokens)
            found_value = gather_paged(cache.value, cache, block_table, tokens)
    finally:
        for part, saved in zip(memory, before, strict=True):
            part.copy_(saved)
    _compare("keys", key, found_key, scales[0])
    _compare("values", value, found_value, scales[1])
    _proven.add(form)


_proven: set[Hashable] = set()


def _compare(
    what: str, written: torch.Tensor, found: torch.Tensor, scale: torch.Tensor | float
) -> None:
    if found.dtype == written.dtype:
        same = torch.equal(written, found)
    else:  # FP8 keeps at least two bits behind the leading one
        same = torch.allclose(found.float(), written.float() / scale, rtol=0.13, atol=0.02)
    if not same:
        raise UnknownCacheForm(
            f"the cache's form is not the known one: written {what} read back differ"
        )
