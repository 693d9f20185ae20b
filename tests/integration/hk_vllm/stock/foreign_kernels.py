"""Kernels of vLLM that the emulator executes, each on generated inputs against float64.

    python -m tests.integration.hk_vllm.stock.foreign_kernels KERNEL ARCH SHAPES SEED

runs one in a process of its own, since Triton's GPU and vLLM's platform are chosen once in a
process. Prints the largest error of each shape, over the error that a right result may have.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from random import Random
from typing import Any

import torch

from hk_backend.lab.foreign import triton_driver
from hk_backend.lab.stock import vllm_attention, vllm_linear, vllm_platform
from hk_backend.lab.stock.batches import ROWS, SPLIT, Batch, error_of, new_tokens
from hk_backend.lab.stock.layers import BLOCK, Layer

ATTENTION = "vllm.v1.attention.ops"
ROUNDED = 2.0**-8
"""A bf16 result is rounded, 2^-9 of itself; the rest is for the kernel's own arithmetic."""


POWERS = (1, 2, 4, 8)
"""Numbers of query heads that share a KV head."""


def drawn_batch(
    random: Random, groups: Sequence[int] = (*POWERS, 3), decode: bool = False, **fixed: Any
) -> Batch:
    """Requests of random lengths and heads; `decode`: each has one new token."""
    group, kv_heads = random.choice(groups), random.choice([1, 2])
    count = random.randint(1, 5)
    queries = [1 if decode else random.randint(1, 150) for _ in range(count)]
    keys = [new + random.choice([0, 0, random.randint(1, 200)]) for new in queries]
    features: dict[str, Any] = {
        "window": random.choice([0, 0, random.randint(1, 100)]),
        "page": random.choice([16, 32, 64]),
        "head_size": random.choice([64, 128, 256]),
    }
    return Batch(queries, keys, group * kv_heads, kv_heads, **{**features, **fixed})


def features_of(random: Random, *features: str) -> dict[str, Any]:
    """None or one of these features of a batch; an FP8 cache only on the arch that has e4m3fn."""
    values: dict[str, Any] = {"sinks": True, "soft_cap": 30.0, "fp8": True}
    dtype = import_module("vllm.platforms").current_platform.fp8_dtype()
    there = [name for name in features if name != "fp8" or dtype == torch.float8_e4m3fn]
    return {name: values[name] for name in random.sample(there, random.choice([0, 1, 1]))}


def unified(random: Random) -> float:
    """Groups are powers of two: with others two workgroups write the same row, equally."""
    features = features_of(random, "sinks", "soft_cap", "fp8")
    batch = drawn_batch(random, groups=POWERS, **features)
    given = batch.arguments(ROWS, random.randrange(1 << 30))
    vllm_attention.run_unified(given)
    return error_of(given.out, given)


def unified_decode(random: Random) -> float:
    """The form that shares a request's keys among workgroups, and the kernel that joins them."""
    batch = drawn_batch(random, groups=POWERS, decode=True)
    given = batch.arguments(ROWS, random.randrange(1 << 30))
    segments, tokens = 8, len(batch.queries)
    vllm_attention.run_unified(
        given,
        seq_threshold_3D=tokens,
        num_par_softmax_segments=segments,
        softmax_segm_output=torch.empty(tokens, batch.heads, segments, batch.head_size),
        softmax_segm_max=torch.empty(tokens, batch.heads, segments),
        softmax_segm_expsum=torch.empty(tokens, batch.heads, segments),
    )
    return error_of(given.out, given)


def prefix_prefill(random: Random) -> float:
    features = features_of(random, "sinks", "fp8")
    given = drawn_batch(random, **features).arguments(SPLIT, random.randrange(1 << 30))
    vllm_attention.run_prefix_prefill(given)
    return error_of(given.out, given)


def paged_decode(random: Random) -> float:
    """ROCM_ATTN's decode where the custom kernel does not apply."""
    batch = drawn_batch(random, decode=True, head_size=random.choice([64, 128]))
    given = batch.arguments(SPLIT, random.randrange(1 << 30))
    cache = given.paged_kv
    assert cache is not None
    assert given.seq_lens is not None
    platform: Any = import_module("vllm.platforms.rocm")
    platform.use_rocm_custom_paged_attention = lambda *_: False
    one = torch.ones(1)
    import_module(f"{ATTENTION}.chunked_prefill_paged_decode").chunked_prefill_paged_decode(
        given.query,
        *(torch.empty(len(batch.queries), batch.kv_heads, batch.head_size).bfloat16(),) * 2,
        given.out,
        "auto",
        cache.key.tensor,
        cache.value.tensor,
        given.block_table,
        given.query_start_loc,
        given.seq_lens,
        int(given.seq_lens.max()),
        1,
        one,
        one,
        sliding_window=given.sliding_window or 0,
    )
    return error_of(given.out, given)


def cache_write(random: Random) -> float:
    """The write of new keys and values into the cache's slots: a copy, bit for bit."""
    tokens, heads, size = random.randint(1, 90), random.choice([1, 3, 8]), random.choice([64, 128])
    page = random.choice([16, 32])
    pages = -(-tokens // page) + 2
    keys, values = (torch.randn(tokens, heads, size).bfloat16() for _ in range(2))
    caches = [torch.full((pages, page, heads, size), 7.0).bfloat16() for _ in range(2)]
    slots = torch.randperm(pages * page)[:tokens]
    slots[0] = -1  # a token that is not stored
    expected = [cache.clone() for cache in caches]
    for cache, new in zip(expected, (keys, values), strict=True):
        cache.view(-1, heads, size)[slots[1:]] = new[1:]
    one = torch.ones(1)
    module = import_module(f"{ATTENTION}.triton_reshape_and_cache_flash")
    module.triton_reshape_and_cache_flash(keys, values, *caches, slots, "auto", one, one)
    same = all(torch.equal(a, b) for a, b in zip(caches, expected, strict=True))
    return 0.0 if same else float("inf")


def plain_prefill(random: Random) -> float:
    """Attention over keys that lie packed, as the vision encoder calls it."""
    batch = drawn_batch(random, page=16, window=0)
    batch = replace(batch, keys=batch.queries)
    given = batch.arguments(ROWS, random.randrange(1 << 30))
    module = import_module(f"{ATTENTION}.triton_prefill_attention")
    module.context_attention_fwd(
        given.query,
        *new_tokens(given),
        given.out,
        given.query_start_loc[:-1],
        given.query_start_loc.diff(),
        max(batch.queries),
    )
    return error_of(given.out, given)


def merge_states(random: Random, exchanged: bool = False) -> float:
    """The join of two partial results by their log-sum-exps; `exchanged`: by each other's."""
    tokens, heads, size = random.randint(1, 60), random.choice([1, 3, 8]), random.choice([64, 128])
    first, second = (torch.randn(tokens, heads, size).bfloat16() for _ in range(2))
    lse = [torch.randn(heads, tokens) * 4 for _ in range(2)]
    lse[0][:, 0] = -torch.inf
    out = torch.empty_like(first)
    module = import_module(f"{ATTENTION}.triton_merge_attn_states")
    module.merge_attn_states(out, first, lse[exchanged], second, lse[not exchanged])
    weights = torch.stack(lse).double().softmax(0).transpose(1, 2)[..., None]
    both = torch.stack([first, second]).double()
    bound = ROUNDED * (weights * both.abs()).sum(0) + 1e-30
    return float(((out.double() - (weights * both).sum(0)).abs() / bound).max())


def drawn_layer(random: Random, *formats: str) -> Layer:
    m, n = random.randint(1, 200), 16 * random.randint(1, 20)
    return Layer(random.choice(formats), m, n, BLOCK * random.randint(1, 5))


def scaled_mm(random: Random) -> float:
    operands = drawn_layer(random, "fp8_tensor", "fp8_channel").operands(random.randrange(1 << 20))
    return operands.error_of(vllm_linear.run_scaled_mm(operands))


def block_scaled_mm(random: Random) -> float:
    operands = drawn_layer(random, "fp8_block").operands(random.randrange(1 << 20))
    return operands.error_of(vllm_linear.run_block_scaled_mm(operands))


def matmul(random: Random) -> float:
    operands = drawn_layer(random, "bf16").operands(random.randrange(1 << 20))
    return operands.error_of(vllm_linear.run_matmul(operands))


def quantise(random: Random, by_columns: bool) -> float:
    """FP8 codes times their scales: half a step of e4m3 away, 2^-4 of the number or of its group's
    least normal number."""
    rows, groups = random.randint(1, 40), random.randint(1, 6)
    x = (torch.randn(rows, 2 * BLOCK * groups) * random.choice([0.01, 1, 100])).bfloat16()
    x = x[:, : BLOCK * groups]  # rows apart: contiguous ones go to a compiled operator
    module = import_module("vllm.model_executor.layers.quantization.utils.fp8_utils")
    codes, scales = module.per_token_group_quant_fp8(
        x, BLOCK, column_major_scales=by_columns, use_ue8m0=False
    )
    if rows == 1:
        scales = scales.view(1, -1)
    back = codes.double() * scales.double().repeat_interleave(BLOCK, dim=1)
    least = scales.double().repeat_interleave(BLOCK, dim=1) * 2.0**-6
    bound = torch.maximum(x.double().abs(), least) * (2.0**-4 + 2.0**-20)
    return float(((back - x.double()).abs() / bound).max())


def rms_norm(random: Random) -> float:
    x = torch.randn(random.randint(1, 30), 64 * random.randint(1, 30)).bfloat16()
    weight = torch.randn(x.shape[1]).bfloat16()
    module = import_module("vllm.model_executor.determinism.batch_invariant")
    out = module.rms_norm_batch_invariant(x, weight, 1e-6)
    wide = x.double()
    expected = wide / (wide.square().mean(1, keepdim=True) + 1e-6).sqrt() * weight.double()
    return float(((out.double() - expected).abs() / (2 * ROUNDED * expected.abs() + 1e-30)).max())


def softmax(random: Random) -> float:
    x = torch.randn(random.randint(1, 20), random.randint(2, 3000)) * 10
    module = import_module("vllm.model_executor.determinism.batch_invariant")
    expected = x.double().softmax(1)
    below = x.double().amax(1, keepdim=True) - x.double()  # the exponent is rounded in float32
    bound = (below * 2.0**-23 + 2.0**-20) * expected + 1e-30
    return float(((module.softmax(x).double() - expected).abs() / bound).max())


KERNELS: dict[str, Callable[[Random], float]] = {
    "unified": unified,
    "unified_decode": unified_decode,
    "prefix_prefill": prefix_prefill,
    "paged_decode": paged_decode,
    "cache_write": cache_write,
    "plain_prefill": plain_prefill,
    "merge_states": merge_states,
    "scaled_mm": scaled_mm,
    "block_scaled_mm": block_scaled_mm,
    "matmul": matmul,
    "quantise": lambda random: quantise(random, by_columns=False),
    "quantise_by_columns": lambda random: quantise(random, by_columns=True),
    "rms_norm": rms_norm,
    "softmax": softmax,
}
"""Each function runs a kernel on inputs drawn from a generator, and returns the largest error."""


CONTROLS: dict[str, Callable[[Random], float]] = {
    "exchanged_states": lambda random: merge_states(random, exchanged=True)
}
"""Calls whose results are wrong."""


def main(kernel: str, arch: str, shapes: int, seed: int) -> None:
    vllm_platform.pretend(arch)
    gpu = triton_driver.install(arch)
    random = Random(seed)
    torch.manual_seed(seed)
    call = {**KERNELS, **CONTROLS}[kernel]
    errors = [call(random) for _ in range(shapes)]
    launched = {launch.kernel: 0 for launch in gpu.launches}
    for launch in gpu.launches:
        launched[launch.kernel] += 1
    print(json.dumps({"errors": errors, "launched": launched}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
