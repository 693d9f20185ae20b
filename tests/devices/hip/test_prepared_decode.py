"""Decode launches that are prepared once per layer: their results and their refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hk_backend.devices import always
from hk_backend.devices.hip.prepared_decode import PreparedDecode
from hk_backend.terms.attention_arguments import DecodeArguments
from hk_backend.terms.attention_step import AttentionStep
from tests.devices.hip.attention_call import BF16, Call
from tests.devices.hip.device import OnTheHost
from tests.devices.hip.hip_calls import stream
from tests.ops.cases import Case

FIRST, SECOND = ((1, 70), (1, 40)), ((1, 33), (1, 60), (1, 9))
VERIFIES = ((4, 70), (1, 17), (3, 3))
# all have equally many blocks, since an engine's cache has a fixed number
LAYOUT = "NHD, two tensors"


def case(lengths: Any, heads: int = 4, kv_dtype: torch.dtype | None = None, **more: Any) -> Case:
    return Case(lengths, heads, 2, 64, BF16, kv_dtype, LAYOUT, 16, **more)


def step(call: Call, max_query_len: int) -> AttentionStep:
    rows = call.made["query_start_loc"], call.num_tokens
    keys = call.made["seq_lens"], call.made["block_table"]
    return AttentionStep.of(*rows, *keys, max_query_len=max_query_len)


def prepared(call: Call, device: OnTheHost, max_query_len: int = 1) -> PreparedDecode:
    arguments = {name: value for name, value in call.made.items() if name != "causal"}
    of = DecodeArguments(**arguments, out=call.out, max_query_len=max_query_len)
    made = device.prepare(of, call.tensors)
    assert isinstance(made, PreparedDecode)
    return made


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"sliding_window": 20},
        {"sinks": True},
        {"kv_dtype": torch.float8_e4m3fn, "k_scale": "number", "v_scale": "per head"},
    ],
    ids=str,
)
def test_other_tensors_and_rows(
    more: dict[str, Any], device: OnTheHost, streams: dict[int, int]
) -> None:
    """A launch prepared with one step computes the next, with another number of requests."""
    before, now = (Call(case(lengths, **more)) for lengths in (FIRST, SECOND))
    found = prepared(before, device)
    for name in ("sinks", "k_scale", "v_scale"):
        if isinstance(before.made.get(name), torch.Tensor):
            now.made[name] = before.made[name]
    assert found.launch(step(now, 1), now.tensors)
    assert device.library.report()["synchronising_calls"] == 0
    assert now.out.isnan().all(), "it ran before anything waited"
    device.library.synchronise(streams[0])
    now.check()
    assert before.out.isnan().all()


def test_the_tile_follows_from_the_most_query_tokens(
    device: OnTheHost, streams: dict[int, int]
) -> None:
    """The same recordings serve steps of one token and of several; a tile too small is refused."""
    before, now = Call(case(FIRST)), Call(case(VERIFIES))
    found = prepared(before, device)
    assert found.launch(step(now, 4), now.tensors)
    device.library.synchronise(streams[0])
    now.check()
    most = found.tiles[-1][0].tile.rows // found.group
    assert not found.launch(step(now, most + 1), now.tensors)
    assert found.launch(step(now, most), now.tensors)


def test_layers_share_what_they_write_for_each_other(
    device: OnTheHost, streams: dict[int, int]
) -> None:
    """Layers of a step share its values and the stream's workspace; another stream has its own."""
    first, second = Call(case(FIRST)), Call(case(FIRST))
    rows = step(first, 1)
    found = prepared(first, device)
    for call in (first, second):
        assert found.launch(rows, call.tensors)
    assert len(rows.derived) == 1
    streams[0] = stream(device.library)
    assert found.launch(rows, second.tensors)
    assert len(rows.derived) == 2
    addresses = {values.tensors["partial"].data_ptr() for _, values in rows.derived.values()}
    assert len(addresses) == 2
    device.library.call("hipDeviceSynchronize")
    first.check()


def test_what_a_plan_does_not_know_is_not_prepared(
    device: OnTheHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Call(case(FIRST))
    arguments = {name: value for name, value in call.made.items() if name != "causal"}
    lse = torch.empty(4, call.num_tokens)
    assert device.prepare(DecodeArguments(**arguments, out=call.out, lse=lse), call.tensors) is None
    monkeypatch.setattr("hk_backend.devices.hip.device.reads_tensors", False)
    with always(device):
        assert device.prepare(DecodeArguments(**arguments, out=call.out), call.tensors) is None


@pytest.mark.parametrize("name", ["query", "out"])
def test_tensors_of_another_layout_are_refused(name: str, device: OnTheHost) -> None:
    call = Call(case(FIRST))
    found, index = prepared(call, device), {"query": 0, "out": 3}[name]
    other = call.tensors[index].half()
    tensors = (*call.tensors[:index], other, *call.tensors[index + 1 :])
    calls = device.library.launch_calls()
    assert not found.launch(step(call, 1), tensors)
    assert device.library.launch_calls() == calls
