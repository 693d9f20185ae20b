"""What is read and written: strides of any kind, NaN in whatever must not matter, foreign bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.forked import Programs
from tests.ops.cases import Call, Case, make, nan
from tests.ops.oracle import check, expected
from tests.ops.strategies import DTYPES, generated

Placer = Callable[[torch.Tensor], torch.Tensor]


def heads_first(tensor: torch.Tensor) -> torch.Tensor:
    """Memory order `[heads, tokens, channels]`."""
    return tensor.transpose(0, 1).contiguous().transpose(0, 1)


def channels_first(tensor: torch.Tensor) -> torch.Tensor:
    """Memory order `[channels, heads, tokens]`: the channel stride is not 1."""
    return tensor.permute(2, 1, 0).contiguous().permute(2, 1, 0)


def tokens_last(tensor: torch.Tensor) -> torch.Tensor:
    """Memory order `[heads, channels, tokens]`."""
    return tensor.permute(1, 2, 0).contiguous().permute(2, 0, 1)


def every_other_channel(tensor: torch.Tensor) -> torch.Tensor:
    """Channel stride 2, NaN between."""
    return inside(tensor, (1, 1, 2), (0, 0, 1))


def every_third_row(tensor: torch.Tensor) -> torch.Tensor:
    """Token stride 3 and head stride 2, NaN between."""
    return inside(tensor, (3, 2, 1), (2, 1, 0))


def fused(tensor: torch.Tensor) -> torch.Tensor:
    """Part of a fused qkv projection: foreign heads on both sides, nothing aligned."""
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
    **{
        placer.__name__: placer
        for placer in (
            heads_first,
            channels_first,
            tokens_last,
            every_other_channel,
            every_third_row,
            fused,
        )
    },
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PLACERS)
def test_inputs_of_any_strides(name: str, dtype: torch.dtype, isa: str) -> None:
    for head_size in (64, 72):
        case = Case(lengths=((21, 21), (40, 70)), num_heads=4, num_kv_heads=2, dtype=dtype)
        call = make(case.but(head_size=head_size))
        for part in ("query", "key", "value"):
            call[part] = PLACERS[name](call[part])
        check(call)


@given(st.tuples(*[st.sampled_from(sorted(PLACERS))] * 4), st.sampled_from(DTYPES), st.booleans())
@generated(examples=60)
def test_any_strides_together(
    names: tuple[str, str, str, str], dtype: torch.dtype, causal: bool
) -> None:
    case = Case(lengths=((33, 33), (5, 18)), num_heads=6, num_kv_heads=3, dtype=dtype)
    call = make(case.but(causal=causal, after=2))
    placed = [PLACERS[name] for name in names]
    for part, place in zip(("query", "key", "value"), placed, strict=False):
        call[part] = place(call[part])
    check_out_in_place(call, placed[3])


@pytest.mark.parametrize("name", PLACERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_output_of_any_strides(dtype: torch.dtype, name: str, isa: str) -> None:
    """The bytes around a strided output, and its rows past the batch, stay what they were."""
    call = make(Case(lengths=((50, 50), (1, 9)), num_heads=4, dtype=dtype, after=5))
    check_out_in_place(call, PLACERS[name])


def check_out_in_place(call: Call, place: Placer) -> None:
    """`check` into an output placed by `place`; every other byte of its storage must stay."""
    out = place(torch.empty(call["query"].shape, dtype=call["query"].dtype))
    elements = out.untyped_storage().nbytes() // out.itemsize
    storage = out.as_strided((elements,), (1,), 0)
    storage.view(torch.uint8).random_(generator=torch.Generator().manual_seed(1))
    want = storage.clone()
    check(call, out=out)
    want.as_strided(out.shape, out.stride(), out.storage_offset()).copy_(out)
    assert torch.equal(storage.view(torch.uint8), want.view(torch.uint8))


def test_one_key_head_expanded_over_all() -> None:
    call = make(Case(lengths=((30, 30),), num_heads=4))
    for part in ("key", "value"):
        call[part] = call[part].expand(-1, 4, -1)
    check(call)


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
def test_a_bad_key_reaches_only_rows_that_see_it(
    window: int | None, part: str, bad: float, isa: str
) -> None:
    """Future keys, keys behind the window, other requests: rows that see none stay exact."""
    for tokens in ((0,), (16, 200, 378), (35, 369, 374)):
        call = make(Case(lengths=LENGTHS, sliding_window=window, num_heads=4, num_kv_heads=2))
        call[part][list(tokens), 1] = bad
        finite = expected(call).out.isfinite()
        assert finite[:, :2].all()
        assert 0 < finite[:, 2:].sum() < finite[:, 2:].numel()
        check(call)


def test_a_bad_query_reaches_only_its_own_row(isa: str) -> None:
    call = make(Case(lengths=LENGTHS, num_heads=4, num_kv_heads=2))
    for token, head, bad in ((0, 0, torch.nan), (17, 3, torch.inf), (100, 1, torch.nan)):
        call["query"][token, head] = bad
    assert expected(call).out.isfinite().all(-1).logical_not().sum() == 3
    check(call)


@pytest.mark.parametrize("layout", ["NHD, two tensors", "token innermost: [H,D,B,N]"])
def test_a_bad_cache_slot_reaches_only_rows_that_see_it(layout: str, isa: str) -> None:
    """The last cached key of one request is NaN: the others, in neighbouring blocks, are exact."""
    call = make(Case(lengths=((5, 33), (7, 48), (3, 31)), layout=layout, num_heads=4))
    cache = call["paged_kv"]
    block = int(call["block_table"][1, 2])
    at = (slice(None), slice(None), block, 15) if layout.startswith("token") else (block, 15)
    cache.key.tensor[at] = torch.nan
    finite = expected(call).out.isfinite().all(-1).all(-1)
    assert finite.tolist() == [True] * 5 + [True] * 6 + [False] + [True] * 3
    check(call)


@pytest.mark.parametrize("causal", [True, False])
def test_no_temporary_grows_with_the_square_of_the_length(causal: bool, programs: Programs) -> None:
    """8192 tokens: one head's scores would take 256 MiB. Run in a process of its own."""
    program = f"""
import torch
from hk_backend.ops import attention_prefill

def memory(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) * 1024

def run(tokens):
    q, k, v = torch.randn(3, tokens, 1, 16)
    starts = torch.tensor([0, tokens], dtype=torch.int32)
    out = torch.zeros(tokens, 1, 16)
    attention_prefill(q, k, v, query_start_loc=starts, causal={causal}, out=out)
    return out

run(512)
with open("/proc/self/clear_refs", "w") as reset:
    reset.write("5")  # the peak starts over: a child begins with its parent's
before = memory("VmRSS")
assert run(8192).isfinite().all()
print(memory("VmHWM") - before)
"""
    assert 2**20 < int(programs.check(program)) < 2**25  # the tensors alone are two mebibytes
