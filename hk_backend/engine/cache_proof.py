"""Proof, on the running engine, that HK reads a cache in the form of the engine's own writer.

The form of a cache is knowledge about another project's kernels. If they change, reading in the old
form is silently wrong. So before a cache is first read, a block that no request ever owns is
written by the engine's own writer and read back through HK's description.
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
    """Writes the spare block, reads it back and restores it, once per process and `form`.

    Args:
        cache: HK's description of the cache.
        dtype: dtype of the keys and values that the model projects.
        scales: factors of an FP8 cache's keys and values.
        memory: the spare block's own elements, in one tensor or several.

    Raises:
        UnknownCacheForm: the values read differ from those written.
    """
    if form in _proven:
        return
    device, tokens = cache.key.tensor.device, cache.block_size
    shape = (tokens, cache.num_kv_heads, cache.head_size)
    generator = torch.Generator().manual_seed(0)
    pairs = [_values(shape, cache.dtype, dtype, generator) for _ in scales]
    # in units of the scales, whatever they are, as FP8 holds neither much more nor much less
    key, value = (
        (new.to(device) * scale).to(dtype) for (new, _), scale in zip(pairs, scales, strict=True)
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
    for what, (_, codes), found in zip(
        ("keys", "values"), pairs, (found_key, found_value), strict=True
    ):
        if not torch.equal(found.cpu().float(), codes):
            raise UnknownCacheForm(
                f"the cache does not have the expected form: written {what} read back differ"
            )
    _proven.add(form)


_proven: set[Hashable] = set()


NEAR = 0.01
"""Distance of written values from the middle between two codes, as a share of the value.

A scale that is off by more gives other codes. Rounding to bfloat16, before and after a writer
applies the scale, moves a value by 2^-8 at most.
"""


def _values(
    shape: tuple[int, ...], stored: torch.dtype, dtype: torch.dtype, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random numbers to write, and the float32 values that a cache in `stored` must then hold."""
    random = torch.randn(shape, generator=generator)
    if stored.itemsize > 1:
        written = random.to(dtype)
        return written, written.to(stored).float()
    spacing = torch.finfo(stored).eps  # spacing of the codes between 1 and 2
    size, exponent = torch.frexp(random.clamp(-3.5, 3.5))
    code = (size * 2 / spacing).trunc() * spacing  # towards zero, 1 <= |code| < 2
    middle = code + code.sign() * spacing / 2
    above = torch.rand(shape, generator=generator) < 0.5
    nearest = torch.where(above, code + code.sign() * spacing, code)
    beside = middle * torch.where(above, 1 + NEAR, 1 - NEAR)
    power = exponent.clamp(min=-3) - 1
    return torch.ldexp(beside, power), torch.ldexp(nearest, power)
