"""SGLang's Triton attention: the kernel with which its `triton` backend extends a cache."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hk_backend.lab.foreign.triton_driver import UNITS, TritonGpu
from hk_backend.lab.stock.attention import StockAttention, steps_of
from hk_backend.lab.stock.batches import ROWS, Batch, new_tokens
from hk_backend.terms.attention_arguments import AttentionArguments

EXTEND = "sglang.kernels.ops.attention.extend_attention"
DECODE = "sglang.kernels.ops.attention.decode_attention"


def import_kernels(arch: str, users: Sequence[str] = ()) -> None:
    """Import SGLang's kernels, and the modules `users`, as on a GPU of `arch`.

    They ask for the GPU while they are imported, and their choices stay.
    """
    utils: Any = import_module("sglang.srt.utils")
    answers = {
        "is_hip": True,
        "is_gfx95_supported": arch == "gfx950",
        "is_gfx942_supported": arch == "gfx942",
        "get_device_core_count": UNITS[arch],
    }
    plain = {name: getattr(utils, name) for name in answers}
    for name, answer in answers.items():
        setattr(utils, name, lambda *_, answer=answer: answer)
    try:
        for module in (EXTEND, DECODE, *users):
            import_module(module)
    finally:
        vars(utils).update(plain)


def run_extend(given: AttentionArguments) -> None:
    """Attention as the `triton` backend calls it: new keys lie beside the cache, in which only the
    tokens before them are read."""
    module = import_module(EXTEND)
    cache = given.paged_kv
    assert cache is not None
    assert given.block_table is not None
    assert given.seq_lens is not None
    new = given.query_start_loc.diff()
    before = given.seq_lens - new
    slots = (
        given.block_table[:, :, None] * cache.block_size + torch.arange(cache.block_size)
    ).flatten(1)
    window = given.sliding_window
    kept = before.clamp(max=window) if window else before  # as `update_sliding_window_buffer` does
    starts = torch.nn.functional.pad(kept.cumsum(0), (1, 0)).int()
    read = [
        own[count - last : count]
        for own, count, last in zip(slots, before.tolist(), kept.tolist(), strict=True)
    ]
    module.extend_attention_fwd(
        given.query,
        *new_tokens(given),
        given.out,
        *(view.tensor.flatten(0, 1) for view in (cache.key, cache.value)),
        given.query_start_loc,
        starts,
        torch.cat(read).long(),
        None,
        True,
        None,
        int(new.max()),
        *(float(scale) for scale in (given.k_scale, given.v_scale)),
        sm_scale=given.query.shape[2] ** -0.5,
        logit_cap=given.logits_soft_cap or 0.0,
        sliding_window_size=window - 1 if window else -1,
        sinks=given.sinks,
        extend_seq_lens_cpu=new.tolist(),
    )


def extend_work(batch: Batch, grid: Sequence[int]) -> NDArray[np.float64]:
    """Steps of each workgroup; the grid is packed, or requests, heads and blocks of tokens."""
    _, _, _, tokens, keys, _ = import_module(EXTEND)._get_block_sizes_for_extend_attention(
        batch.head_size, batch.head_size
    )
    of_requests = [
        steps_of(batch, np.arange(0, new, tokens), tokens, new, total, keys)
        for new, total in zip(batch.queries, batch.keys, strict=True)
    ]
    if grid[2] == 1 and grid[1] == batch.heads:
        packed = np.concatenate(of_requests)
        steps = np.zeros(grid[0])
        steps[: len(packed)] = packed[: grid[0]]
        return np.tile(steps, grid[1])
    whole = np.zeros((grid[2], 1, grid[0]))
    for request, own in enumerate(of_requests):
        whole[: len(own), 0, request] = own
    return np.broadcast_to(whole, (grid[2], grid[1], grid[0])).reshape(-1)


def kernels(gpu: TritonGpu) -> list[StockAttention]:
    """SGLang's kernel for prefill on an AMD GPU without AITER."""
    return [
        StockAttention(
            gpu,
            "SGLang triton",
            ROWS,
            run_extend,
            extend_work,
            lambda grid: max(grid[0], 1),
            lambda batch: "SGLang decodes in steps of their own" if batch.decode else "",
        )
    ]
