"""`attention_prefill` on a GPU: what its kernels compute, and their argument struct
(csrc/include/hk/args/attention_prefill.hpp). Reads host facts only: shapes, strides, dtypes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import torch

from hk_backend.devices.hip.attention_mask import Masking
from hk_backend.devices.hip.attention_problem import problem_of
from hk_backend.devices.hip.cache_form import (
    BLOCK_TOKENS,
    VALID,
    cache_arguments,
    form_of,
    form_of_cache,
)
from hk_backend.devices.hip.call import KernelCall, Work, bad
from hk_backend.devices.hip.operator import Machine, Problem, Usable, Way, as_it_is
from hk_backend.kernels import Catalogue, Fact, Family, KernelEntry, NoKernel
from hk_backend.kernels.masks import ALL_KEYS, GROUPED
from hk_backend.kernels.row_sources import PACKED, SPLIT, group_arguments
from hk_backend.terms.attention_arguments import AttentionArguments
from hk_backend.terms.paged_kv import PagedKV
from hk_backend.terms.requests import AttentionRequest
from hk_backend.terms.verdict import Verdict, refused

OPERATOR = "attention_prefill"
DTYPES = {torch.bfloat16: "bf16", torch.float16: "f16"}
STORED = {**DTYPES, torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}
"""Of keys and values."""
ALIGNMENT = 16
"""Of every row, in bytes: the kernels read and write 16 at once."""
ROW_ELEMENTS = 2**26
"""Elements from one token to the next: fewer, so that a tile's byte offsets fit 32 bits."""
WAVE_TOKENS, WAVE_BYTES = 31, 2**32 - 2**12
"""From the first to the last token of a wave's rows, and bytes from the first one to the last."""
LARGEST_DIVIDED = 2**31
"""Rows of a step times the heads of a KV head: fewer (csrc/include/hk/types/divisor.hpp)."""
MOST_TILES = MOST_REQUESTS = 2**15
"""Of full tiles of queries; each request may add one: a grid's second and third dimension are
below 2^16."""
LARGEST_SCALE = 2.0**127
"""Of the scores, in size: times log2(e) it is a float32 in the kernels."""
SMALLEST_BIASED_SCALE = 2.0**-64
"""Of scores with ALiBi, unless 0: the kernels divide the slopes by it, and these stay float32."""
BLOCK_BYTES = 2**32 - 2**12
"""From one block of a cache to the next: fewer."""
PADDING = 8
"""Channels that a kernel for several head sizes has to leave out in its self-check."""
ROWS = "rows of attention (tokens times heads)"


def verdict(request: AttentionRequest, kernels: Catalogue, usable: Usable) -> Verdict:
    """Whether a usable kernel computes `request`; if not, one line that says why."""
    arch = kernels.arch
    if request.dtype not in DTYPES:
        return refused(f"dtype {request.dtype}: the {arch} kernels compute bfloat16 and float16")
    stored = request.kv_dtype or request.dtype
    if stored not in STORED:
        return refused(f"keys and values in {stored}: the {arch} kernels read {_listed(STORED)}")
    keys = _keys(request)
    if keys is None:
        return refused(f"cache with {_layouts(request)}: the {arch} kernels read {VALID}")
    asked = Masking.of_request(request)
    found = alternatives(kernels, request.dtype, stored, request.head_size, keys, asked.mask)
    if isinstance(found, NoKernel):
        if found.fact == "stored":
            read = _listed(found.valid)
            return refused(f"{keys} keys and values in {stored}: the {arch} kernels read {read}")
        if found.fact == "mask":
            facts = facts_of(request.dtype, stored, request.head_size, keys)
            missing = asked.refusal() or asked.missing(kernels.families[OPERATOR], stored, facts)
            return refused(f"{missing}: not in the {arch} kernels")
        if _serves(kernels, request.head_size):
            return refused(
                f"head_size {request.head_size} of {keys} keys and values in {stored}: the {arch} "
                f"kernels have {_sizes(found)}"
            )
        return refused(f"head_size {request.head_size}: the {arch} kernels have {_sizes(found)}")
    if refusal := asked.refusal():
        return refused(f"{refusal}: not in the {arch} kernels")
    if keys == SPLIT and request.block_size is not None and request.block_size % BLOCK_TOKENS:
        return refused(
            f"block_size {request.block_size}: the {arch} kernels read multiples of {BLOCK_TOKENS} "
            f"of a cache with {_layouts(request)}"
        )
    return usable(found)


def _keys(request: AttentionRequest) -> str | None:
    """How keys and values lie; None: as no kernel reads them."""
    if not request.paged:
        return PACKED
    layouts = request.cache_layouts or ("B N H D", "B N H D")
    return form_of(layouts, request.block_size or BLOCK_TOKENS)


def _layouts(request: AttentionRequest) -> str:
    keys, values = request.cache_layouts or ("", "")
    return f'keys as "{keys}" and values as "{values}"'


def alternatives(
    kernels: Catalogue,
    dtype: torch.dtype,
    stored: torch.dtype,
    head_size: int,
    keys: str,
    mask: str,
) -> Family | NoKernel:
    """The kernels for one of `DTYPES`, for keys and values in one of `STORED` that lie as `keys`
    says (hk_backend/kernels/row_sources.py), and for a mask: those of this head size, or padded
    ones of the next size that there are some for."""
    facts = facts_of(dtype, stored, head_size, keys)
    found = kernels.alternatives(OPERATOR, padded=False, **facts, mask=mask)
    if not isinstance(found, NoKernel) or found.fact != "head_size":
        return found
    size = min((size for size in _padded_sizes(kernels) if size >= head_size), default=head_size)
    of = {**facts, "head_size": size}
    padded = kernels.alternatives(OPERATOR, padded=True, **of, mask=mask)
    return found if isinstance(padded, NoKernel) and padded.fact != "mask" else padded


def facts_of(dtype: torch.dtype, stored: torch.dtype, head_size: int, keys: str) -> dict[str, Fact]:
    """Of the kernels for these, whatever their mask."""
    return {
        "dtype": DTYPES[dtype],
        "keys": keys,
        "stored": STORED[stored],
        "head_size": head_size,
    }


def _padded_sizes(kernels: Catalogue) -> set[int]:
    """Up to which there are kernels for any multiple of 8."""
    family = kernels.families.get(OPERATOR, ())
    return {int(entry.facts["head_size"]) for entry in family if entry.facts["padded"]}


def _serves(kernels: Catalogue, head_size: int) -> bool:
    """Whether there is a kernel for it, of some keys and values."""
    own = {entry.facts["head_size"] for entry in kernels.families.get(OPERATOR, ())}
    return head_size in own or head_size <= max(_padded_sizes(kernels), default=0)


def _sizes(found: NoKernel) -> str:
    """The head sizes that there are kernels for."""
    return _listed(found.valid if found.fact == "head_size" else ()) or "no size"


def _listed(valid: Iterable[object]) -> str:
    names = [str(each) for each in valid]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 2 else names)


def prepare(of: AttentionArguments, kernels: Catalogue) -> KernelCall:
    """The launch of one call, whose arguments the operator has checked.

    Raises:
        ValueError: what the kernels do not compute, or a layout that they cannot read; names the
            argument, its value and what would be valid.
    """
    found = _kernels_of(of, kernels)
    query, out, lse = of.query, of.out, of.lse
    key, value = of.stored()
    tokens, heads, head_size = query.shape
    tensors = {"query": query, "key": key, "value": value, "out": out}
    numbers: dict[str, float] = {}
    if of.paged_kv is not None:
        _add_paged(of, of.paged_kv, str(found[0].facts["keys"]), tensors, numbers)
    else:
        _add_packed(of, tensors, numbers)
    for name, tensor in (("query", query), ("out", out)):
        numbers |= _packed_strides(name, tensor)
    in_rows = {"query", "out"} if found[0].facts["keys"] == SPLIT else set(tensors)
    for name, stride in numbers.items():
        _check_stride(name, int(stride), head_size, tensors, in_rows)
    for name in ("query", "key", "value", "out"):
        address = tensors[name].data_ptr()
        if address % ALIGNMENT:
            bad(name, f"address {address:#x}", f"a multiple of {ALIGNMENT} bytes")
    scale, value_factor, k_scale, v_scale = of.factors()
    if abs(scale) > LARGEST_SCALE:
        bad("scale", f"{scale:g}", f"at most {LARGEST_SCALE:g} in size")
    if of.alibi_slopes is not None and 0 < abs(scale) < SMALLEST_BIASED_SCALE:
        bad("scale", f"{scale:g} with alibi_slopes", f"{SMALLEST_BIASED_SCALE:g} or more in size")
    for name, of_heads in (("key_scale", k_scale), ("value_scale", v_scale)):
        numbers[f"{name}_head"] = 0
        if of_heads is not None:
            tensors[name] = of_heads
            numbers[f"{name}_head"] = of_heads.stride(0) if of_heads.shape[0] > 1 else 0
    tensors["query_start_loc"] = of.query_start_loc.contiguous()
    if lse is not None:
        tensors["lse"] = lse
    for name, of_each_head in (("sinks", of.sinks), ("alibi_slopes", of.alibi_slopes)):
        if of_each_head is not None:
            tensors[name] = of_each_head.contiguous()
    cache = of.paged_kv
    numbers |= {
        "lse_head": 0 if lse is None else lse.stride(0),
        "lse_token": 1 if lse is None else lse.stride(1),
        "num_blocks": 0 if cache is None else cache.num_blocks,
        "block_size": 0 if cache is None else cache.block_size,
        "causal": int(of.causal),
        "head_size": head_size,
        "window": min(of.sliding_window or ALL_KEYS, ALL_KEYS),
        "scale": scale,
        "value_factor": value_factor,
        "parts": 1,
        "part_keys": 0,
        "out_part": 0,
        "lse_part": 0,
        "soft_cap": of.logits_soft_cap or 0.0,
    }
    kv_heads = key.shape[1] if cache is None else cache.num_kv_heads
    group = group_arguments(heads, kv_heads)
    numbers["group_reciprocal"] = group["group_reciprocal"]
    sizes = {
        "num_requests": of.query_start_loc.shape[0] - 1,
        "num_tokens": tokens,
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "group": group["group"],
    }
    if found[0].facts["mask"] in GROUPED:
        _check_groups(sizes["group"], tensors, numbers)
    for name, number, most in (
        ("query", tokens, most_tokens(found, sizes["group"])),
        ("query_start_loc", sizes["num_requests"], MOST_REQUESTS),
    ):
        if number > most:
            bad(name, f"a length of {number}", f"at most {most}")
    return KernelCall(found, tensors, numbers | sizes, sizes, Work(tokens * heads, ROWS))


def _kernels_of(of: AttentionArguments, kernels: Catalogue) -> Family:
    """The kernels that compute this; refuses what none does."""
    query, key = of.query, of.stored()[0]
    if query.dtype not in DTYPES:
        bad("query", query.dtype, "bfloat16 or float16")
    keys = PACKED if of.paged_kv is None else form_of_cache(of.paged_kv)
    asked, size = Masking.of_call(of), query.shape[2]
    found = alternatives(kernels, query.dtype, key.dtype, size, keys, asked.mask)
    refusal = asked.refusal()
    if isinstance(found, NoKernel):
        if found.fact == "stored":
            bad("key", f"{keys} in {key.dtype}", _listed(found.valid))
        if found.fact != "mask":
            bad("query", f"head_size {size}", _sizes(found))
        facts = facts_of(query.dtype, key.dtype, size, keys)
        refusal = refusal or asked.missing(kernels.families[OPERATOR], key.dtype, facts)
    if refusal is not None:
        bad(refusal.argument, f"one {refusal.what}", None)
    assert not isinstance(found, NoKernel)
    for name in ("k_scale", "v_scale"):
        if key.dtype == query.dtype and isinstance(getattr(of, name), torch.Tensor):
            bad(name, f"a tensor for keys and values in {key.dtype}", "a number")
    return found


def _add_paged(
    of: AttentionArguments,
    cache: PagedKV,
    keys: str,
    tensors: dict[str, torch.Tensor],
    numbers: dict[str, float],
) -> None:
    """What tells the kernel where keys and values lie in a cache."""
    assert of.block_table is not None
    assert of.seq_lens is not None
    block_table = of.block_table
    if block_table.shape[1] > 1 and block_table.stride(1) != 1:
        block_table = block_table.contiguous()
    tensors |= {"seq_lens": of.seq_lens.contiguous(), "block_table": block_table}
    numbers["block_table_row"] = block_table.stride(0)
    numbers |= cache_arguments(cache, keys)


def _add_packed(
    of: AttentionArguments, tensors: dict[str, torch.Tensor], numbers: dict[str, float]
) -> None:
    """What tells the kernel where packed keys and values lie."""
    starts = of.query_start_loc if of.key_start_loc is None else of.key_start_loc
    tensors["key_start_loc"] = starts.contiguous()
    apart = ("key_block", "value_block", "key_piece", "value_piece", "block_table_row")
    numbers |= dict.fromkeys((*apart, "block_rows", "block_reciprocal"), 0)
    for name in ("key", "value"):
        numbers |= _packed_strides(name, tensors[name])


def _packed_strides(name: str, tensor: torch.Tensor) -> dict[str, int]:
    token, head, channel = tensor.stride()
    tokens, heads, head_size = tensor.shape
    if channel != 1:
        bad(name, f"channel stride {channel}", "1: the kernels read a head's channels at once")
    # torch allows any stride for an axis of one element
    return {
        f"{name}_token": token if tokens > 1 else heads * head_size,
        f"{name}_head": head if heads > 1 else head_size,
    }


def _check_stride(
    name: str,
    stride: int,
    head_size: int,
    tensors: Mapping[str, torch.Tensor],
    in_rows: Collection[str],
) -> None:
    tensor, _, axis = name.partition("_")
    if name.startswith("block_") or (axis in ("token", "piece") and tensor not in in_rows):
        return
    element = tensors[tensor].element_size()
    if stride * element % ALIGNMENT:
        bad(name, f"a stride of {stride} elements", f"a multiple of {ALIGNMENT // element}")
    if name.endswith("_token") and not head_size <= stride < ROW_ELEMENTS:
        bad(name, f"a stride of {stride} elements", f"at least {head_size}, below {ROW_ELEMENTS}")
    if name.endswith("_block") and not 0 <= stride * element < BLOCK_BYTES:
        bad(name, f"a stride of {stride} elements", f"0 to {BLOCK_BYTES // element - 1}")


def most_tokens(kernels: Family, group: int) -> int:
    """Of a step."""
    rows = MOST_TILES * min(kernel.tile.rows for kernel in kernels)
    if kernels[0].facts.get("mask") not in GROUPED:
        return rows
    return min(rows // group, (LARGEST_DIVIDED - 1) // group**2)


def _check_groups(
    group: int, tensors: Mapping[str, torch.Tensor], numbers: Mapping[str, float]
) -> None:
    """Where a tile has the rows of several heads."""
    for name in ("query", "out", "lse"):
        if name in tensors:
            head, token = (int(numbers[f"{name}_{axis}"]) for axis in ("head", "token"))
            elements = WAVE_BYTES // tensors[name].element_size()
            if WAVE_TOKENS * token + group * head > elements:
                valid = (elements - WAVE_TOKENS * token) // group
                bad(f"{name}_head", f"a stride of {head} elements", f"at most {valid}")


def settle(call: KernelCall, machine: Machine) -> KernelCall:
    """As it is: what a step is dealt by is not in it (`Layer`)."""
    return call


def ways(kernel: KernelEntry, kernels: Catalogue) -> Sequence[Way]:
    """One."""
    return (as_it_is,)


def self_check_problem(kernel: KernelEntry) -> Problem:
    """What `kernel` must solve before its first use."""
    dtypes, facts = {name: dtype for dtype, name in STORED.items()}, kernel.facts
    dtype, stored = (dtypes[str(facts[fact])] for fact in ("dtype", "stored"))
    keys, mask = str(facts["keys"]), str(facts["mask"])
    head_size = int(facts["head_size"]) - (PADDING if facts["padded"] else 0)
    return problem_of(dtype, stored, head_size, keys, mask)
