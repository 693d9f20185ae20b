"""Repeated attention calls on the cpu device, without repeated checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hk_backend.devices.base import Prepared
from hk_backend.devices.cpu.device import CpuDevice
from hk_backend.devices.cpu.isas import usable_isas
from hk_backend.terms.attention_arguments import AttentionArguments, DecodeArguments
from hk_backend.terms.attention_step import AttentionStep
from tests.ops.cases import Call, Case, int32, make, output_of
from tests.ops.oracle import expected

CASE = Case(
    ((1, 40), (3, 70)),
    6,
    2,
    dtype=torch.bfloat16,
    layout="CPU_ATTN: K [D,N], V [N,D], one storage",
    sinks=True,
    k_scale="per head",
)
PACKED = Case(((5, 5), (20, 20)), 6, 2)


@pytest.fixture
def device() -> CpuDevice:
    return CpuDevice(usable_isas()[0])


def prepared(
    device: CpuDevice, call: Call, out: torch.Tensor, **more: Any
) -> tuple[Prepared, tuple[torch.Tensor, ...]]:
    """A prepared call, and its tensors in the form in which an engine hands them over."""
    kind = AttentionArguments if call.get("paged_kv") is None else DecodeArguments
    of = kind(**{**call, "out": out, **more})
    tensors = (of.query, *of.stored(), out)
    found = device.prepare(of, tensors)
    assert found is not None
    return found, tensors


def step_of(call: Call, max_query_len: int | None = None) -> AttentionStep:
    starts = call["query_start_loc"]
    rows = call.get("seq_lens"), call.get("block_table")
    return AttentionStep.of(starts, int(starts[-1]), *rows, max_query_len=max_query_len)


@pytest.mark.parametrize("case", [CASE, PACKED], ids=["paged", "packed"])
def test_it_repeats_for_other_values_and_rows(case: Case, device: CpuDevice) -> None:
    """A second batch of as many blocks: other lengths, tables, queries and cache contents."""
    call = make(case)
    again = make(case.but(seed=1, lengths=case.lengths[::-1]))
    for name in ("sinks", "k_scale", "v_scale"):
        again[name] = call[name]
    out = torch.zeros_like(output_of(call))
    found, tensors = prepared(device, call, out)
    paged = call.get("paged_kv") is not None
    if paged:
        tensors[1].copy_(again["paged_kv"].key.tensor)
        tensors[2].copy_(again["paged_kv"].value.tensor)
        given = (again["query"], *tensors[1:])
    else:
        given = (again["query"], again["key"], again["value"], out)
    assert found.launch(step_of(again, 3 if paged else None), given)
    want = expected(again).out
    assert (out.double() - want).abs().max() < (0.02 if paged else 1e-4)


def test_it_finds_keys_and_values_in_one_tensor(device: CpuDevice) -> None:
    """An engine may hand over a cache whole, and no views of its keys and values."""

    def whole(call: Call) -> torch.Tensor:
        key, value = call["paged_kv"].key.tensor, call["paged_kv"].value.tensor
        storage = key.untyped_storage()
        assert value.untyped_storage().data_ptr() == storage.data_ptr()
        return key.as_strided((storage.nbytes() // key.itemsize,), (1,), 0)

    call, again = make(CASE), make(CASE.but(seed=2))
    for name in ("sinks", "k_scale", "v_scale"):
        again[name] = call[name]
    out = torch.zeros_like(output_of(call))
    of = DecodeArguments(**{**call, "out": out})
    found = device.prepare(of, (of.query, whole(call), whole(call), out))
    assert found is not None
    assert found.launch(step_of(again, 3), (again["query"], whole(again), whole(again), out))
    assert (out.double() - expected(again).out).abs().max() < 0.02


def wider(tensor: torch.Tensor) -> torch.Tensor:
    """The same values with other strides."""
    return torch.cat([tensor, tensor], dim=-1)[..., : tensor.shape[-1]]


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize(
    "change", [lambda x: x.float(), lambda x: x[:-1], wider], ids=["dtype", "fewer", "strides"]
)
def test_other_tensors_are_not_taken(
    place: int, change: Callable[[torch.Tensor], torch.Tensor], device: CpuDevice
) -> None:
    call = make(CASE)
    out = torch.zeros_like(output_of(call))
    found, tensors = prepared(device, call, out)
    other = list(tensors)
    other[place] = change(tensors[place])
    assert not found.launch(step_of(call, 3), other)
    assert not out.any(), "nothing is written"
    assert found.launch(step_of(call, 3), tensors)


def test_packed_keys_of_fewer_tokens_are_not_taken(device: CpuDevice) -> None:
    call = make(PACKED)
    found, tensors = prepared(device, call, torch.zeros_like(output_of(call)))
    assert not found.launch(step_of(call), (tensors[0], tensors[1], tensors[2][:-1], tensors[3]))


def test_a_call_that_a_repetition_would_not_repeat_is_not_prepared(device: CpuDevice) -> None:
    call = make(CASE)
    out = output_of(call)
    strided = torch.stack([call["sinks"]] * 2, dim=1)[:, 0]
    for more in ({"lse": torch.zeros(6, len(out))}, {"sinks": strided}):
        of = DecodeArguments(**{**call, "out": out, **more})
        assert device.prepare(of, (of.query, *of.stored(), out)) is None
    packed = make(PACKED.but(before=1))
    of_packed = AttentionArguments(**packed, out=output_of(packed))
    assert device.prepare(of_packed, (of_packed.query, *of_packed.stored(), of_packed.out)) is None


@pytest.mark.parametrize(
    ("message", "rows"),
    [
        ("query_start_loc: a request of 3 tokens is not valid", {"max_query_len": 2}),
        (r"seq_lens\[1\]: 10000", {"seq_lens": [40, 10000]}),
        (r"block_table\[0\]\[0\]: -7", {"block": -7}),
    ],
)
def test_values_are_checked_in_each_launch(
    message: str, rows: dict[str, Any], device: CpuDevice
) -> None:
    call = make(CASE)
    out = torch.zeros_like(output_of(call))
    found, tensors = prepared(device, call, out)
    if "seq_lens" in rows:
        call["seq_lens"] = int32(rows["seq_lens"])
    if "block" in rows:
        call["block_table"][0, 0] = rows["block"]
    with pytest.raises(ValueError, match=message):
        found.launch(step_of(call, rows.get("max_query_len", 3)), tensors)
    assert not out.any()
