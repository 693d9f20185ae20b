"""HK's launches in a graph: captured once, replayed with other inputs, right each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hk_backend.devices import always
from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.ops import attention_prefill
from tests.devices.hip.attention_call import BF16, Call
from tests.devices.hip.device import OnTheHost
from tests.devices.hip.graph import Launch, check_replays
from tests.ops.cases import Case

E4M3 = torch.float8_e4m3fn
LAYOUT = "NHD, two tensors"
FIRST, SECOND = ((33, 33), (5, 5)), ((8, 8), (30, 30))
"""As many tokens and requests: these are in the graph. Where a request ends is read anew."""
FIRST_EXTENDS, SECOND_EXTENDS = ((5, 70), (33, 40)), ((30, 75), (8, 33))
"""As many blocks, too."""


def tensors_of(call: Call) -> dict[str, torch.Tensor]:
    """All that the kernel reads."""
    found = {name: value for name, value in call.made.items() if isinstance(value, torch.Tensor)}
    if "paged_kv" in call.made:
        found |= {"key cache": call.tensors[1], "value cache": call.tensors[2]}
    return found


def by_operator(device: OnTheHost, call: Call) -> Callable[[], object]:
    """The first call of a layer."""
    return lambda: attention_prefill(**call.made, out=call.out)


def prepared(device: OnTheHost, call: Call) -> Callable[[], object]:
    """As an engine's later layers are launched."""
    ready, plan = call.prepared(device), call.plan(device)
    return lambda: ready.launch(plan, call.tensors)


def attention(
    device: OnTheHost, case: Case, way: Callable[[OnTheHost, Call], Callable[[], object]]
) -> Launch:
    call = Call(case)
    launch = way(device, call)

    def enqueue() -> torch.Tensor:
        launch()
        return call.out

    return Launch(enqueue, tensors_of(call), lambda out: call.check())


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
    others = [tensors_of(Call(of.but(lengths=second, seed=1))), tensors_of(Call(of.but(seed=2)))]
    with always(device):
        check_replays(library, streams[0], attention(device, of, way), others)
