"""AITER's attention for an MI355X: the assembled code object that its wheel ships.

The wheel's Python code is not run, since it wants ROCm. The code object is loaded from the wheel's
folder `aiter_meta`, with the arguments and the grid of AITER's own `fmha_fwd_v3_group_dispatcher`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hk_backend import _emulator
from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock.attention import StockAttention
from hk_backend.lab.stock.batches import ROWS, Batch, packed_tokens
from hk_backend.terms.attention_arguments import AttentionArguments

NAME = "AITER"
PACKAGE = "aiter_meta"
ARCH = "gfx950"
FILE = f"hsa/{ARCH}/fmha_v3_fwd/fwd_hd128_bf16_causal_group.co"
SIZE, BLOCK, TOKENS = 128, 512, 256
"""Elements of a head; work-items of a workgroup; tokens of a tile, of which it takes two."""
TUNED = 5
"""Value of `s_opt` at multiples of eight heads and up to 16,384 tokens."""
DESCRIPTOR_BYTES, ACCUM_OFFSET_AT, ACCUM_OFFSET_MASK = 64, 44, 0x3F
SYMBOLS, SECTION, SYMBOL = 11, "<IIQQQQIIQQ", "<IBBHQQ"
"""Type of a section of dynamic symbols; entries of the ELF file's tables."""
ON_PURPOSE = ("hazard", "ambiguous", "overwritten-in-flight")
"""Checks of which it has findings with the right result, on prompts of up to 256 tokens."""


def folder() -> Path | None:
    """The wheel's folder of code objects, if it is installed."""
    spec = find_spec(PACKAGE)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


@lru_cache
def _kernel(root: Path) -> _emulator.Kernel:
    elf = with_all_registers((root / FILE).read_bytes())
    (kernel,) = _emulator.CodeObject.load(elf).kernels
    return kernel


def with_all_registers(elf: bytes) -> bytes:
    """The code object with ACCUM_OFFSET 256, so that all of its registers are plain ones.

    The file says 160, but its code uses v0 to v255, and no accumulation register.
    """
    made = bytearray(elf)
    (headers,), (count,) = struct.unpack_from("<Q", elf, 40), struct.unpack_from("<H", elf, 60)
    width = struct.calcsize(SECTION)
    sections = [struct.unpack_from(SECTION, elf, headers + width * at) for at in range(count)]
    for section in sections:
        if section[1] != SYMBOLS:
            continue
        for at in range(section[4], section[4] + section[5], struct.calcsize(SYMBOL)):
            _, _, _, home, value, size = struct.unpack_from(SYMBOL, elf, at)
            if size == DESCRIPTOR_BYTES:
                word = sections[home][4] + value - sections[home][3] + ACCUM_OFFSET_AT
                made[word] |= ACCUM_OFFSET_MASK
    return bytes(made)


def run_attention(gpu: TritonGpu, root: Path, given: AttentionArguments) -> None:
    """Attention over packed prompts."""
    kernel = _kernel(root)
    keys, values = packed_tokens(given)
    heads, kv_heads, starts = given.query.shape[1], keys.shape[1], given.query_start_loc
    longest = int(starts.diff().max())
    of_query, of_key = 2 * SIZE * heads, 2 * SIZE * kv_heads
    by_name: dict[str, Any] = {
        "R": given.out,
        "Q": given.query,
        "K": keys,
        "V": values,
        "LSE": torch.empty(heads, len(keys)),
        "scalar": SIZE**-0.5,
        "gqa": heads // kv_heads,
        "q_head_num": heads,
        "msk_opt": TUNED,
        "Ts": TOKENS * of_query,
        "lse_Hs": 4 * longest,
    }
    by_name |= dict.fromkeys(("seq_len", "kv_seq_len"), longest)
    by_name |= dict.fromkeys(("qk_head_dim", "v_head_dim"), SIZE)
    by_name |= dict.fromkeys(("Seqs", "r_Seqs"), of_query)
    by_name |= dict.fromkeys(("k_Seqs", "v_Seqs"), of_key)
    by_name |= dict.fromkeys(("Hs", "k_Hs", "v_Hs", "r_Hs"), 2 * SIZE)
    tables = ("ptr_qseq", "ptr_kseq", "ptr_qseq_padding", "ptr_kseq_padding")
    by_name |= dict.fromkeys(tables, starts)
    # the others are padding and, over packed prompts, zero
    arguments = [by_name.get(place.name, bytes(place.size)) for place in kernel.arguments]
    grid = (heads, len(starts) - 1, -(-longest // (2 * TOKENS)))
    gpu.run(kernel, grid, BLOCK, arguments, 0)


def attention_work(batch: Batch, grid: Sequence[int]) -> NDArray[np.float64]:
    """Each workgroup takes an early and a late tile of a head: all have the same work."""
    return np.ones(grid[0] * grid[1] * grid[2])


def lacks_in_attention(batch: Batch) -> str:
    if batch.head_size != SIZE or batch.heads % 8:
        return f"its heads have {SIZE} elements, and their number is a multiple of 8"
    if batch.queries != batch.keys or len({*batch.queries}) > 1:
        return "it is called for prompts of one length"
    if batch.queries[0] % (2 * TOKENS):
        return f"its work is known for multiples of {2 * TOKENS} tokens"
    if batch.window or batch.soft_cap or batch.sinks or batch.fp8:
        return "it has no window, soft cap, sinks and FP8"
    return ""


def checked_batch(batch: Batch) -> Batch:
    """Prompts of one tile, and of three: the second one is a workgroup's other tile."""
    group = batch.heads // batch.kv_heads
    return Batch((70, 600), (70, 600), 8, max(8 // group, 1), SIZE)


def kernels(gpu: TritonGpu, root: Path) -> list[StockAttention]:
    """AITER's causal attention for prefill."""
    return [
        StockAttention(
            gpu,
            f"{NAME} fmha_v3_fwd",
            ROWS,
            lambda given: run_attention(gpu, root, given),
            attention_work,
            lambda grid: 1,
            lacks_in_attention,
            checked_batch,
            ON_PURPOSE,
        )
    ]
