"""A call's arguments, as the GPU kernels take them; before anything runs."""

from __future__ import annotations

import math

import pytest
import torch

from tests.devices.hip.attention_call import paged, prepared


def test_a_packed_call() -> None:
    call = prepared()
    assert [kernel.name for kernel in call.kernels] == ["attention_prefill_bf16_d64_packed"]
    assert set(call.tensors) == {
        "query",
        "key",
        "value",
        "out",
        "query_start_loc",
        "key_start_loc",
    }
    assert call.tensors["key_start_loc"].tolist() == [0, 5, 12], "the queries' by default"
    expected = {
        "query_token": 256,
        "query_head": 64,
        "key_token": 128,
        "key_head": 64,
        "value_token": 128,
        "out_token": 256,
        "num_requests": 2,
        "num_tokens": 12,
        "num_heads": 4,
        "num_kv_heads": 2,
        "causal": 1,
        "window": 2**30,
        "scale": 0.5,
        "value_factor": 2.0,
    }
    assert {name: call.numbers[name] for name in expected} == expected


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


@pytest.mark.parametrize(
    ("window", "sinks", "handed_over"),
    [(7, None, 7), (2**40, None, 2**30), (None, torch.zeros(4), 2**30), (1, torch.zeros(4), 1)],
)
def test_windows_and_sinks(
    window: int | None, sinks: torch.Tensor | None, handed_over: int
) -> None:
    """Kernels of their own; sinks are handed over as they are."""
    call = prepared(sliding_window=window, sinks=sinks)
    assert [kernel.facts["mask"] for kernel in call.kernels] == ["window"]
    assert call.numbers["window"] == handed_over
    assert call.tensors.get("sinks") is sinks


@pytest.mark.parametrize("window", [None, 7])
def test_soft_caps_and_slopes(window: int | None) -> None:
    """Kernels of their own, with a window or without; slopes are handed over as they are."""
    capped = prepared(sliding_window=window, logits_soft_cap=30.0)
    assert [kernel.facts["mask"] for kernel in capped.kernels] == ["capped"]
    assert capped.numbers["soft_cap"] == 30.0
    slopes = torch.zeros(4)
    biased = prepared(sliding_window=window, alibi_slopes=slopes)
    assert [kernel.facts["mask"] for kernel in biased.kernels] == ["alibi"]
    assert biased.tensors["alibi_slopes"] is slopes
    assert {call.numbers["window"] for call in (capped, biased)} == {window or 2**30}


@pytest.mark.parametrize("name", ["sinks", "alibi_slopes"])
def test_what_lies_apart_is_brought_together(name: str) -> None:
    call = prepared(**{name: torch.arange(8.0)[::2]})
    assert call.tensors[name].stride() == (1,)


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


def test_rows_that_lie_too_far_apart() -> None:
    """A tile's byte offsets are 32 bits: 2^26 elements from token to token are too many."""
    shape = prepared().tensors["query"].shape
    for stride in (2**26 - 8, 2**26):
        far = torch.empty_strided(shape, (stride, 64, 1), dtype=torch.bfloat16, device="meta")
        if stride < 2**26:
            assert prepared(query=far).numbers["query_token"] == stride
            continue
        with pytest.raises(ValueError, match="query_token: a stride of 67108864 elements"):
            prepared(query=far)


@pytest.mark.parametrize("name", ["query", "out"])
def test_heads_that_lie_too_far_apart(name: str) -> None:
    """A wave's rows are of all heads of a group: they span less than 2^32 bytes."""
    shape = prepared().tensors["query"].shape
    for stride in (2**29, 2**30):  # two heads to a KV head, of two bytes
        far = torch.empty_strided(shape, (256, stride, 1), dtype=torch.bfloat16, device="meta")
        if stride < 2**30:
            assert prepared(**{name: far}).numbers[f"{name}_head"] == stride
            continue
        with pytest.raises(ValueError, match=f"{name}_head: a stride of 1073741824 elements"):
            prepared(**{name: far})


def test_more_rows_than_a_grid_may_have_tiles() -> None:
    shape = prepared().tensors["query"].shape
    for tokens in (2**21, 2**21 + 1):  # two rows to a token, 128 to a tile
        many = torch.empty((tokens, *shape[1:]), dtype=torch.bfloat16, device="meta")
        if tokens == 2**21:
            assert prepared(query=many, out=many).sizes["num_tokens"] == tokens
            continue
        with pytest.raises(ValueError, match="query: a length of 2097153"):
            prepared(query=many, out=many)


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
