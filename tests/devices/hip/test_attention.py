"""A call's arguments, as the GPU kernels take them; before anything runs."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from tests.devices.hip.attention_call import paged, prepared


def per_head(*shape: int) -> torch.Tensor:
    return torch.arange(1.0, 1 + math.prod(shape)).view(shape)


@pytest.mark.parametrize(
    ("k_scale", "v_scale", "pointers", "strides", "factors"),
    [
        (0.25, 3.0, set(), (0, 0), (0.5 * 0.25, 3.0)),
        (per_head(2), per_head(2), {"key", "value"}, (1, 1), (0.5, 1.0)),
        (per_head(1), per_head(2), {"key", "value"}, (0, 1), (0.5, 1.0)),
        (0.25, per_head(1), {"value"}, (0, 0), (0.5 * 0.25, 1.0)),
        (per_head(2, 3)[:, 1], 3.0, {"key"}, (3, 0), (0.5, 3.0)),
    ],
)
def test_the_scales_of_an_fp8_cache(
    k_scale: torch.Tensor | float,
    v_scale: torch.Tensor | float,
    pointers: set[str],
    strides: tuple[int, int],
    factors: tuple[float, float],
) -> None:
    """Numbers become those of the scores and of the output; tensors are handed over as they are:
    they are on the GPU, and reading one would wait for it."""
    changes = paged("NHD, two tensors", kv_dtype=torch.float8_e4m3fn)
    call = prepared(**changes, k_scale=k_scale, v_scale=v_scale)
    given = {"key_scale": k_scale, "value_scale": v_scale}
    assert {name for name in given if name in call.tensors} == {
        f"{name}_scale" for name in pointers
    }
    assert all(call.tensors[f"{name}_scale"] is given[f"{name}_scale"] for name in pointers)
    numbers = call.numbers
    assert (numbers["key_scale_head"], numbers["value_scale_head"]) == strides
    assert (numbers["scale"], numbers["value_factor"]) == factors


@pytest.mark.parametrize("window", [None, 7, 2**40])
@pytest.mark.parametrize("name", ["sinks", "alibi_slopes"])
def test_tensors_of_masks_are_handed_over_as_they_are(name: str, window: int | None) -> None:
    """But for those whose numbers lie apart, which are brought together."""
    of_heads = torch.zeros(4)
    call = prepared(sliding_window=window, **{name: of_heads})
    assert call.tensors[name] is of_heads
    assert call.numbers["window"] == min(window or 2**30, 2**30)
    assert prepared(**{name: torch.arange(8.0)[::2]}).tensors[name].stride() == (1,)


def test_a_scale_that_slopes_cannot_be_divided_by() -> None:
    for scale in (0.0, 2.0**-64, -(2.0**-64)):
        prepared(alibi_slopes=torch.ones(4), scale=scale)
    with pytest.raises(ValueError, match=r"scale: .* with alibi_slopes is not valid .* or more"):
        prepared(alibi_slopes=torch.ones(4), scale=2.0**-65)


def test_the_log_sum_exp_may_have_any_strides() -> None:
    for lse, strides in (
        (torch.empty(4, 12), (12, 1)),
        (torch.empty(12, 4).T, (1, 4)),
        (torch.empty(4, 12, 3)[..., 0], (36, 3)),
    ):
        call = prepared(lse=lse)
        assert call.tensors["lse"] is lse
        assert (call.numbers["lse_head"], call.numbers["lse_token"]) == strides
    assert "lse" not in prepared().tensors, "the kernel gets a null pointer"


def strided(tensor: torch.Tensor, *stride: int) -> torch.Tensor:
    return torch.zeros(1 << 16, dtype=tensor.dtype).as_strided(tensor.shape, stride)


def test_layouts_that_the_kernels_cannot_read() -> None:
    query = prepared().tensors["query"]
    wide = torch.zeros(*query.shape[:2], 128, dtype=query.dtype)
    shifted = torch.zeros(query.numel() + 8, dtype=query.dtype)[1 : 1 + query.numel()]
    for name, tensor, why in (
        ("query", wide[:, :, ::2], "query: channel stride 2 is not valid"),
        ("out", wide[:, :, ::2], "out: channel stride 2 is not valid"),
        ("query", strided(query, 264, 65, 1), "query_head: a stride of 65 elements"),
        ("query", strided(query, 0, 64, 1), "query_token: a stride of 0 elements"),
        ("query", shifted.view(query.shape), "query: address 0x"),
    ):
        with pytest.raises(ValueError, match=why):
            prepared(**{name: tensor})


@pytest.mark.parametrize(
    ("name", "number", "stride", "limit"),
    [
        # a tile's byte offsets are 32 bits
        ("query", "query_token", lambda n: (n, 64, 1), 2**26),
        # a wave's rows are of all heads of a group: two to a KV head, of two bytes
        ("query", "query_head", lambda n: (256, n, 1), 2**30),
        ("out", "out_head", lambda n: (256, n, 1), 2**30),
    ],
)
def test_rows_that_lie_too_far_apart(
    name: str, number: str, stride: Callable[[int], tuple[int, ...]], limit: int
) -> None:
    shape = prepared().tensors["query"].shape
    near, far = (
        torch.empty_strided(shape, stride(n), dtype=torch.bfloat16, device="meta")
        for n in (limit - 8, limit)
    )
    assert prepared(**{name: near}).numbers[number] == limit - 8
    with pytest.raises(ValueError, match=f"{number}: a stride of {limit} elements"):
        prepared(**{name: far})


def test_more_rows_than_a_grid_may_have_tiles() -> None:
    """Two rows to a token, 128 to a tile."""
    shape = prepared().tensors["query"].shape
    most, more = (
        torch.empty((tokens, *shape[1:]), dtype=torch.bfloat16, device="meta")
        for tokens in (2**21, 2**21 + 1)
    )
    assert prepared(query=most, out=most).sizes["num_tokens"] == 2**21
    with pytest.raises(ValueError, match="query: a length of 2097153"):
        prepared(query=more, out=more)


def test_a_lone_token_may_have_any_stride() -> None:
    """torch gives an axis of one element whatever stride it likes."""
    query = torch.zeros(1, 4, 64, dtype=torch.bfloat16).as_strided((1, 4, 64), (3, 64, 1))
    key = torch.zeros(1, 1, 64, dtype=torch.bfloat16).as_strided((1, 1, 64), (5, 7, 1))
    starts = torch.tensor([0, 1], dtype=torch.int32)
    call = prepared(
        query=query, key=key, value=key, out=torch.empty_like(query), query_start_loc=starts
    )
    assert call.numbers["query_token"] == 256
    assert call.numbers["key_token"] == call.numbers["key_head"] == 64


def test_values_of_another_size() -> None:
    """Padded kernels, which are told both sizes; each tensor's rows are at least its own."""
    for value_size in (128, 40):
        value = torch.zeros(12, 2, value_size, dtype=torch.bfloat16)
        call = prepared(value=value, out=value.new_zeros(12, 4, value_size))
        assert [kernel.facts["padded"] for kernel in call.kernels] == [True]
        assert (call.numbers["head_size"], call.numbers["value_size"]) == (64, value_size)
        assert call.numbers["value_token"] == 2 * value_size
        assert call.numbers["out_token"] == 4 * value_size
    short = value.as_strided(value.shape, (32, 40, 1))
    with pytest.raises(ValueError, match=r"value_token: a stride of 32 .* at least 40"):
        prepared(value=short, out=value.new_zeros(12, 4, 40))
    with pytest.raises(
        ValueError, match=r"value: values of 40 channels with keys of 64, packed in"
    ):
        prepared(value=value, out=value.new_zeros(12, 4, 40), logits_soft_cap=3.0)


@pytest.mark.parametrize("scale", [2.0**127 * 1.01, -1e300])
def test_a_scale_past_float32(scale: float) -> None:
    with pytest.raises(ValueError, match=r"scale: .* is not valid .* at most 1.70141e\+38"):
        prepared(scale=scale)
