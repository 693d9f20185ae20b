"""The two-page probe of the attention kernels: pages at 2^31, 2^32 and 2^33 bytes of a cache.

All other bytes of the cache are NaN (tests/ops/far_pages.py), so a wrong address is a wrong result.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator

import pytest
import torch

from hk_backend import _emulator
from hk_backend.kernels import KernelEntry, catalogue
from hk_backend.ops import PagedKV
from tests.kernels.attention_launch import SPLIT_LAYOUTS, Launch, Outcome, kernels, passes
from tests.kernels.cover import proved
from tests.kernels.mutants import Mutant, code_of
from tests.ops.cases import Case, make
from tests.ops.far_pages import Far, poisoned

ROWS = (
    "NHD, two tensors",
    "HND, two tensors",
    "one [2,B,N,H,D]",
    "one [B,2,N,H,D]",
    "one [B,H,2,N,D]",
    "one [B,H,N,2D]",
    "one [B,H,N,2D], NHD strides",
    "one [B,N,H,2D]",
    "one [B,N,H,Dk+Dv]",
)
"""Layouts of tests/ops/layouts that the kernels read, but for those in pieces."""
CLEAR = 0xBE800080
"""The word of s_mov_b32 s0, 0 (CDNA3 ISA, SOP1)."""


@kernels(keys=("paged",), layout=ROWS, block_size=(16, 64, 80))
def test_pages_of_multiples_of_16(entry: KernelEntry, layout: str, block_size: int) -> None:
    passes(Launch.of(entry, far(entry, layout, block_size).call))


@kernels(keys=("split",), layout=SPLIT_LAYOUTS, block_size=(16, 64, 80))
def test_pages_in_pieces_of_16_bytes(entry: KernelEntry, layout: str, block_size: int) -> None:
    passes(Launch.of(entry, far(entry, layout, block_size).call))


@kernels(keys=("any_pages",), layout=ROWS, block_size=(3, 8, 44))
def test_pages_of_other_sizes(entry: KernelEntry, layout: str, block_size: int) -> None:
    passes(Launch.of(entry, far(entry, layout, block_size).call))


@kernels(keys=("tokens",), layout=ROWS)
def test_pages_of_one_token(entry: KernelEntry, layout: str) -> None:
    passes(Launch.of(entry, far(entry, layout, 1).call))


def far(entry: KernelEntry, layout: str, block_size: int) -> Far:
    """The probe for a kernel, in a layout if the kernel reads it."""
    case = Case(num_heads=4, num_kv_heads=2, layout=layout, block_size=block_size)
    return Far.of(Launch.fitting(entry, case))


@kernels(keys=("paged",), stored=("bf16", "e4m3"))
def test_rows_as_far_apart_as_a_block_may_have_them(entry: KernelEntry) -> None:
    """A cache `[N, B, H, D]`: from a block's first row to its last one almost 2^32 bytes. With more
    the envelope refuses it (tests/devices/hip/test_attention.py)."""
    case = Case(lengths=((7, 250),), num_heads=4, num_kv_heads=2, block_size=128)
    call = make(Launch.fitting(entry, case.but(layout="NHD, two tensors")))
    small: PagedKV = call["paged_kv"]
    views = [spread_rows(view.tensor) for view in (small.key, small.value)]
    call["paged_kv"] = PagedKV.from_views(views[0], "B N H D", views[1], "B N H D")
    passes(Launch.of(entry, call))


def spread_rows(cache: torch.Tensor) -> torch.Tensor:
    """A copy of a cache `[B, N, H, D]` whose rows are as far apart as they may be."""
    blocks, tokens, heads, channels = cache.shape
    apart = (2**32 - 1) // ((tokens - 1) * cache.itemsize) // 16 * 16
    shape = (tokens, blocks, heads, channels)
    memory = poisoned(2**32 + apart * cache.itemsize).view(cache.dtype)
    far = memory.as_strided(shape, (apart, heads * channels, channels, 1))
    return far.copy_(cache.transpose(0, 1)).transpose(0, 1)


READERS = {
    keys: [
        catalogue("gfx950").kernel(f"attention_prefill_bf16_d128_{keys}{stored}")
        for stored in ("", "_e4m3")
    ]
    for keys in ("paged", "split", "tokens")
}
"""Kernels for each way to find pages of a power of two, by it."""


@pytest.mark.parametrize("bits", [31, 32, 33])
@proved([entry for entries in READERS.values() for entry in entries])
def test_an_offset_that_wraps_is_seen(entry: KernelEntry, bits: int) -> None:
    """A control: requests whose pages are taken from where wrapped offsets lead are NaN."""
    probe = far(entry, "HND, two tensors", 16)
    out = Launch.of(entry, probe.wrapped(bits)).run().out
    starts = probe.call["query_start_loc"].tolist()
    wrong = [bool(out[slice(*rows)].isnan().any()) for rows in itertools.pairwise(starts)]
    assert wrong == [edge >= 2**bits for edge in (*probe.edges, probe.edges[-1])]


FEWEST = 12
"""Least number of products that place keys or values, each in its step of the loop."""


@proved([*READERS["paged"], *READERS["split"]])
def test_a_product_without_its_high_half_is_seen(entry: KernelEntry) -> None:
    """A control: blocks times strides in 32 bits are right in a small cache and wrong in a far
    one."""
    probes = [far(entry, "HND, two tensors", block_size) for block_size in (16, 64)]
    small, large = (
        [Launch.of(entry, call) for call in calls]
        for calls in ([probe.small for probe in probes], [probe.call for probe in probes])
    )
    assert all(map(is_right, (launch.run() for launch in (*small, *large))))
    found = [
        mutant
        for mutant, code in without_a_high_half(entry)
        if all(is_right(launch.run(code)) for launch in small)
        and not all(is_right(launch.run(code)) for launch in large)
    ]
    assert len(found) >= FEWEST, found


def is_right(outcome: Outcome) -> bool:
    return not outcome.findings and outcome.excess <= 1


def without_a_high_half(entry: KernelEntry) -> Iterator[tuple[Mutant, bytes]]:
    """A mutant for each scalar product of 64 bits, whose high half is 0, and its code object."""
    words, offset, begin, end = code_of(entry)
    for place, instruction in _emulator.disassemble(words[begin:end], entry.arch):
        if instruction.startswith("s_mul_hi_u32"):
            (word,) = struct.unpack_from("<I", words, begin + place)
            cleared = CLEAR | (word >> 16 & 0x7F) << 16  # the destination: bits 16 to 22 in both
            mutant = Mutant(begin + place, ((begin + place, cleared),), f"{instruction} is 0")
            yield mutant, mutant.apply(entry.code_object(), offset)
