"""SGLang's Triton decode attention: keys in splits, and the persistent kernel of larger batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hk_backend.lab.foreign.triton_driver import UNITS, TritonGpu
from hk_backend.lab.stock.batches import ROWS, Batch
from hk_backend.lab.stock.decode import Step, StockDecode, in_parts
from hk_backend.lab.stock.sglang_attention import DECODE
from hk_backend.terms.attention_arguments import AttentionArguments

METADATA = "sglang.kernels.ops.attention.metadata"
SPLITS = 16
"""Most splits of a request on AMD GPUs (arg_groups/platform_hook.py)."""
SPLIT_KEYS = 32
"""Keys that a split is a multiple of (`_MIN_BLOCK_KV`)."""
MOST_SCHEDULED = 256
"""Requests for which the number of splits is computed at once."""


def prepare_splits(gpu: TritonGpu, given: AttentionArguments) -> Step:
    """A step of the `triton` backend whose keys are split, and joined by a second kernel."""
    assert given.seq_lens is not None
    keys = given.seq_lens.numpy().astype(np.int64)
    run, splits = _step(gpu, given, {"enable_lean": False})
    part = -(-keys // splits.numpy())
    part = -(-part // SPLIT_KEYS) * SPLIT_KEYS
    heads = given.query.shape[1]

    def work(grid: Sequence[int]) -> NDArray[np.float64]:
        """Keys of each workgroup: requests, groups of heads, splits; results for the join."""
        if (grid[1], grid[2]) == (heads, 1):
            return np.tile(splits.numpy().astype(np.float64), heads)
        whole = in_parts(keys, part, grid[2])[:, None]
        return np.broadcast_to(whole, (grid[2], grid[1], grid[0])).reshape(-1)

    return Step(run, work)


def prepare_lean(gpu: TritonGpu, given: AttentionArguments) -> Step:
    """A step of the `triton` backend by its persistent kernel, whose workgroups share all keys.

    A workgroup that begins a request waits for those that go on with it. Where one does, the step
    has no time, since a sample of the workgroups would wait for ever.
    """
    module: Any = import_module(DECODE)
    assert given.seq_lens is not None
    assert given.paged_kv is not None
    module._NUM_CU = UNITS[gpu.arch]
    kv_heads, size = given.paged_kv.num_kv_heads, given.query.shape[2]
    group, rows = given.query.shape[1] // kv_heads, module._LEAN_BLOCK_M
    programs, _, xcds = module._lean_decode_launch_params(kv_heads, group)
    room = {
        "enable_lean": True,
        "lean_Mp": torch.empty(programs, rows),
        "lean_Lp": torch.empty(programs, rows),
        "lean_Op": torch.empty(programs, rows, size),
        "lean_locks": torch.zeros(programs, dtype=torch.int32),
    }
    tiles = -(-given.seq_lens.numpy() // module._lean_decode_block_n(size))
    ends = np.tile(tiles, kv_heads // xcds).cumsum()

    def work(grid: Sequence[int]) -> NDArray[np.float64]:
        """Tiles of keys of each workgroup; the first ones of an XCD have one more."""
        per_xcd = grid[0] // xcds
        each, more = divmod(int(ends[-1]), per_xcd)
        of_xcd = each + (np.arange(per_xcd) < more)
        if not np.isin(of_xcd.cumsum(), ends).all():
            raise ValueError("its workgroups wait for each other, which a sample cannot do")
        return np.repeat(of_xcd.astype(np.float64), xcds)  # workgroups go to XCDs in turn

    run, _ = _step(gpu, given, room)

    def at_once() -> None:
        with _at_once(gpu, programs):
            run()

    return Step(at_once, work)


def _step(
    gpu: TritonGpu, given: AttentionArguments, more: dict[str, Any]
) -> tuple[Callable[[], None], torch.Tensor]:
    """The call of the backend with its metadata, and each request's number of splits."""
    cache, lengths, table = given.paged_kv, given.seq_lens, given.block_table
    assert cache is not None
    assert lengths is not None
    assert table is not None
    requests, heads, size = given.query.shape
    slots = (table[:, :, None] * cache.block_size + torch.arange(cache.block_size)).flatten(1)
    read = [own[:count] for own, count in zip(slots, lengths.tolist(), strict=True)]
    starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    splits = torch.empty(requests, dtype=torch.int32)
    uneven = torch.zeros(1, dtype=torch.int32)
    import_module(METADATA).get_num_kv_splits_triton[(1,)](
        splits,
        lengths,
        requests,
        1,
        heads,
        cache.num_kv_heads,
        SPLITS,
        UNITS[gpu.arch],
        MAX_NUM_SEQ=MOST_SCHEDULED,
        uneven_batch_ptr=uneven,
    )
    partial, sums = torch.empty(requests, heads, SPLITS, size), torch.empty(requests, heads, SPLITS)
    indices = torch.cat(read).long()
    buffers = [view.tensor.flatten(0, 1) for view in (cache.key, cache.value)]

    def run() -> None:
        import_module(DECODE).decode_attention_fwd(
            given.query,
            *buffers,
            given.out,
            starts,
            indices,
            partial,
            sums,
            splits,
            SPLITS,
            size**-0.5,
            *(float(scale) for scale in (given.k_scale, given.v_scale)),
            logit_cap=given.logits_soft_cap or 0.0,
            sinks=given.sinks,
            uneven_batch=uneven,
            **more,
        )

    return run, splits


@contextmanager
def _at_once(gpu: TritonGpu, workgroups: int) -> Iterator[None]:
    """Let so many workgroups run side by side, since some of them wait for others."""
    threads, gpu.gpu.threads = gpu.gpu.threads, workgroups
    try:
        yield
    finally:
        gpu.gpu.threads = threads


def lacks_in_lean(batch: Batch) -> str:
    """Whether a captured graph has the persistent kernel, as SGLang itself decides."""
    module = import_module(DECODE)
    group, size = batch.heads // batch.kv_heads, batch.head_size
    captured = module.lean_capture_policy(batch.heads, group, len(batch.keys))
    fits = module._lean_head_dim_ok(size, size)
    sinks = torch.empty(0) if batch.sinks else None
    used = module._should_use_lean_decode(captured, batch.soft_cap, sinks, -1, None)
    return "" if used and fits else "SGLang splits the keys of such a batch"


def kernels(gpu: TritonGpu) -> list[StockDecode]:
    """SGLang's kernels for decode on an AMD GPU without AITER."""
    return [
        StockDecode(gpu, "SGLang triton, splits", ROWS, lambda of: prepare_splits(gpu, of)),
        StockDecode(
            gpu, "SGLang triton, lean", ROWS, lambda of: prepare_lean(gpu, of), lacks_in_lean
        ),
    ]
