"""Bytes that are read and written: strides of any kind, NaN wherever it must not matter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.forked import Programs
from tests.ops.cases import Case, make, nan
from tests.ops.oracle import check, expected
from tests.ops.strategies import DTYPES

Placer = Callable[[torch.Tensor], torch.Tensor]


def fused(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor within a fused qkv projection: foreign heads on both sides, nothing aligned."""
    heads = tensor.shape[1]
    flat = nan(tensor.numel() // max(heads, 1) * (heads + 3) + 1, dtype=tensor.dtype)[1:]
    wide = flat.view(tensor.shape[0], heads + 3, tensor.shape[2])
    return wide[:, 1 : heads + 1].copy_(tensor)


def inside(
    tensor: torch.Tensor, steps: tuple[int, int, int], offsets: tuple[int, int, int]
) -> torch.Tensor:
    """`tensor` at every `steps`-th place of a bigger one full of NaN."""
    shape = [n * step for n, step in zip(tensor.shape, steps, strict=True)]
    wide = nan(*shape, dtype=tensor.dtype)
    index = tuple(slice(offset, None, step) for step, offset in zip(steps, offsets, strict=True))
    return wide[index].copy_(tensor)


PLACERS: dict[str, Placer] = {
    "contiguous": torch.Tensor.contiguous,
    "heads, tokens, channels": lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
    "channels, heads, tokens": lambda t: t.permute(2, 1, 0).contiguous().permute(2, 1, 0),
    "heads, channels, tokens": lambda t: t.permute(1, 2, 0).contiguous().permute(2, 0, 1),
    "every other channel": lambda t: inside(t, (1, 1, 2), (0, 0, 1)),
    "every third row": lambda t: inside(t, (3, 2, 1), (2, 1, 0)),
    "fused": fused,
}
"""Places for a tensor, named by their order in memory or by what lies between its elements."""
NAMES = list(PLACERS)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_size", [64, 72])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("out_name", NAMES)
def test_any_strides(
    out_name: str, name: str, head_size: int, dtype: torch.dtype, isa: str
) -> None:
    """Each tensor has other strides; bytes around the output, and its rows past the batch, stay."""
    case = Case(lengths=((33, 33), (40, 70), (1, 9)), num_heads=6, num_kv_heads=3, dtype=dtype)
    call = make(case.but(head_size=head_size, after=2))
    for i, part in enumerate(("query", "key", "value")):
        call[part] = PLACERS[NAMES[(NAMES.index(name) + i) % len(NAMES)]](call[part])
    out = PLACERS[out_name](torch.empty(call["query"].shape, dtype=dtype))
    elements = out.untyped_storage().nbytes() // out.itemsize
    storage = out.as_strided((elements,), (1,), 0)
    storage.view(torch.uint8).random_(generator=torch.Generator().manual_seed(1))
    want = storage.clone()
    check(call, out=out)
    want.as_strided(out.shape, out.stride(), out.storage_offset()).copy_(out)
    assert torch.equal(storage.view(torch.uint8), want.view(torch.uint8))


def test_metadata_of_any_strides() -> None:
    """Starts, lengths, sinks, slopes and scales as columns of wider tensors."""
    case = Case(lengths=((9, 60), (0, 3), (20, 20)), num_heads=4, num_kv_heads=2, sinks=True)
    case = case.but(alibi=True, k_scale="per head", v_scale="per head")
    for layout in (None, "HND, two tensors"):
        call = make(case.but(layout=layout, kv_dtype=torch.float8_e4m3fn))
        for name, tensor in call.items():
            if isinstance(tensor, torch.Tensor) and tensor.dim() == 1:
                call[name] = torch.stack([tensor, tensor + 1, tensor - 1], 1)[:, 0]
        check(call)
        call["k_scale"] = torch.tensor([0.7]).expand(2)
        check(call)


LENGTHS = ((70, 70), (40, 300), (9, 9))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("tokens", [(0,), (16, 200, 378), (35, 369, 374), range(166, 262)], ids=str)
def test_a_bad_key_reaches_only_rows_that_see_it(
    tokens: tuple[int, ...], window: int | None, part: str, bad: float, splits: bool, isa: str
) -> None:
    """Future keys and keys behind the window share panels, splits and items with others."""
    call = make(Case(lengths=LENGTHS, sliding_window=window, num_heads=4, num_kv_heads=2))
    call[part][list(tokens), 1] = bad
    finite = expected(call).out.isfinite()
    assert finite[:, :2].all()
    assert finite[:, 2:].sum() > 0
    check(call)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_bad_query_reaches_only_its_own_row(bad: float, isa: str) -> None:
    call = make(Case(lengths=LENGTHS, num_heads=4, num_kv_heads=2))
    for token, head in ((0, 0), (17, 3), (100, 1)):
        call["query"][token, head] = bad
    assert expected(call).out.isfinite().all(-1).logical_not().sum() == 3
    check(call)


PEAK = """
import torch
from hk_backend.ops import attention_prefill

def memory(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) * 1024

def peak(queries, keys, channels, causal):
    q, k, out = (torch.randn(n, 1, channels) for n in (queries, keys, queries))
    starts = [torch.tensor([0, n], dtype=torch.int32) for n in (queries, keys)]
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")  # it starts over: a child begins with its parent's
    before = memory("VmRSS") - memory("RssFile")
    given = {"query_start_loc": starts[0], "key_start_loc": starts[1], "causal": causal}
    assert attention_prefill(q, k, k, out=out, **given).isfinite().all()
    return memory("VmHWM") - memory("RssFile") - before  # a fork maps libraries on first use
"""
"""A program that prints the memory that a call takes beside its tensors."""


@pytest.mark.parametrize("causal", [True, False])
def test_no_temporary_grows_with_the_square_of_the_length(causal: bool, programs: Programs) -> None:
    """8192 tokens: one head's scores would take 256 MiB."""
    program = f"{PEAK}\npeak(512, 512, 16, {causal}), print(peak(8192, 8192, 16, {causal}))"
    assert int(programs.check(program)) < 2**25
