"""HK's launches in a graph: captured once, replayed with other inputs, right each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hk_backend.devices import always
from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.kernels import catalogue
from hk_backend.ops import attention_prefill
from hk_backend.terms.attention_arguments import AttentionArguments
from hk_backend.terms.verdict import SERVED
from tests.devices.hip.device import OnTheHost
from tests.devices.hip.graph import Launch, check_replays
from tests.ops.cases import Call, Case, make
from tests.ops.oracle import close, expected

BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn
LAYOUT = "NHD, two tensors"
FIRST, SECOND = ((33, 33), (5, 5)), ((8, 8), (30, 30))
"""As many tokens and requests: these are in the graph. Where a request ends is read anew."""
FIRST_EXTENDS, SECOND_EXTENDS = ((5, 70), (33, 40)), ((30, 75), (8, 33))
"""As many blocks, too."""


@pytest.fixture
def device(library: EmulatedLibrary, streams: dict[int, int]) -> OnTheHost:
    return OnTheHost(library, catalogue("gfx950"), check=lambda *_: SERVED)


def tensors_of(call: Call) -> dict[str, torch.Tensor]:
    """All that the kernel reads."""
    found = {name: value for name, value in call.items() if isinstance(value, torch.Tensor)}
    if "paged_kv" in call:
        paged = call["paged_kv"]
        found |= {"key cache": paged.key.tensor, "value cache": paged.value.tensor}
    return found


def by_operator(device: OnTheHost, call: Call, out: torch.Tensor) -> Callable[[], object]:
    """The first call of a layer."""
    return lambda: attention_prefill(**call, out=out)


def prepared(device: OnTheHost, call: Call, out: torch.Tensor) -> Callable[[], object]:
    """As an engine's later layers are launched."""
    stored = (call["key"], call["value"]) if "key" in call else ()
    if not stored:
        stored = (call["paged_kv"].key.tensor, call["paged_kv"].value.tensor)
    tensors = (call["query"], *stored, out)
    ready = device.prepare_prefill(AttentionArguments(**call, out=out), tensors)
    assert ready is not None
    rows = (call.get("seq_lens"), call.get("block_table"))
    plan = device.plan_prefill(call["query_start_loc"], len(call["query"]), *rows)
    return lambda: ready.launch(plan, tensors)


def attention(
    device: OnTheHost, case: Case, way: Callable[[OnTheHost, Call, torch.Tensor], Any]
) -> Launch:
    call = make(case)
    out = torch.empty_like(call["query"])

    launch = way(device, call, out)

    def enqueue() -> torch.Tensor:
        launch()
        return out

    def check(out: torch.Tensor) -> None:
        want = expected(call, BF16)
        close("out", out[want.owned], want.out[want.owned], want.out_bound[want.owned])

    return Launch(enqueue, tensors_of(call), check)


@pytest.mark.parametrize("way", [by_operator, prepared])
@pytest.mark.parametrize(
    ("first", "second", "more"),
    [
        (FIRST, SECOND, {}),
        (FIRST_EXTENDS, SECOND_EXTENDS, {"layout": LAYOUT}),
        (
            FIRST_EXTENDS,
            SECOND_EXTENDS,
            {"layout": LAYOUT, "kv_dtype": E4M3, "k_scale": "one", "v_scale": "per head"},
        ),
    ],
    ids=["packed", "paged", "narrow"],
)
def test_attention(
    first: Any,
    second: Any,
    more: dict[str, Any],
    way: Any,
    device: OnTheHost,
    library: EmulatedLibrary,
    streams: dict[int, int],
) -> None:
    of = Case(first, 4, 2, 64, BF16, **more)
    others = [tensors_of(make(of.but(lengths=second, seed=1))), tensors_of(make(of.but(seed=2)))]
    with always(device):
        check_replays(library, streams[0], attention(device, of, way), others)


def test_several_launches_of_a_layer_s_own_tensors(
    device: OnTheHost, library: EmulatedLibrary, streams: dict[int, int]
) -> None:
    """In one graph, in order: the second reads what the first wrote."""
    of = Case(FIRST, 2, 2, 64, BF16)
    first = attention(device, of, by_operator)
    call = make(of.but(seed=3))
    out = torch.empty_like(call["query"])

    def enqueue() -> torch.Tensor:
        call["query"] = first.enqueue()
        attention_prefill(**call, out=out)
        return out

    def check(out: torch.Tensor) -> None:
        first.check(call["query"])
        want = expected(call, BF16)
        close("out", out, want.out, want.out_bound)

    with always(device):
        launch = Launch(enqueue, first.tensors, check)
        check_replays(library, streams[0], launch, [tensors_of(make(of.but(seed=4)))])
