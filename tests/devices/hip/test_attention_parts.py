"""Attention with the keys of a row split into parts for several workgroups: the operator and
prepared launches follow the plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hk_backend.devices.hip.dealing import DealtLayer
from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.devices.hip.prepared_attention import PreparedAttention
from hk_backend.kernels import KernelEntry, catalogue
from hk_backend.kernels.attention_plan import Choice, Parts
from hk_backend.terms.attention_arguments import AttentionArguments
from hk_backend.terms.verdict import SERVED, Verdict, refused
from tests.devices.hip.attention_call import BF16, Call
from tests.devices.hip.device import OnTheHost
from tests.ops.cases import Case
from tests.ops.oracle import nan

CASE = Case(((40, 300), (7, 65)), 4, 2, 64, BF16, None, "NHD, two tensors", 16)
NEXT = Case(((3, 200), (33, 150), (1, 1)), 4, 2, 64, BF16, None, "NHD, two tensors", 16)
LONGEST = 300
Deal = Callable[[int, int], None]


@pytest.fixture
def deal(monkeypatch: pytest.MonkeyPatch) -> Deal:
    """Makes the planner answer this number of parts, each of this many keys."""

    def chosen(number: int, keys: int) -> None:
        def choose(layer: DealtLayer, *_: object) -> Choice:
            parts = Parts(number, keys) if layer.parts else Parts(1, 0)
            return Choice(layer.sizes[0], parts, 0, 0)

        monkeypatch.setattr(DealtLayer, "choose", choose)

    return chosen


class Shared(Call):
    """A call whose keys are split, run by the operator or by a prepared launch."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.lse = nan(*self.out.shape[:2], dtype=torch.float32).T.contiguous()

    def run(self, device: OnTheHost, longest: int | None = LONGEST) -> torch.Tensor:
        """Runs the call by the operator."""
        arguments = AttentionArguments(**self.made, out=self.out, lse=self.lse, max_seq_len=longest)
        device.run(arguments)
        device.library.synchronise(device.memory.stream(0))
        return self.out

    def launch(self, device: OnTheHost, prepared: PreparedAttention) -> torch.Tensor:
        assert prepared.launch(self.step(LONGEST), self.tensors)
        device.library.synchronise(device.memory.stream(0))
        return self.out

    def is_right(self, with_lse: bool = True) -> None:
        self.check(self.lse if with_lse else None, in_parts=True)


def kernels_of(device: OnTheHost) -> list[KernelEntry]:
    """The kernels of the launches that were waited for, each launched once; then forgets them."""
    found = device.mapped.library.report()["kernels"]
    device.mapped.library.forget_report()
    assert all(each["launches"] == 1 for each in found.values())
    return [device.catalogue.kernel(name) for name in found]


def launched(device: OnTheHost) -> list[str]:
    """The operators of `kernels_of`."""
    return sorted((kernel.operator for kernel in kernels_of(device)), reverse=True)


BOTH = ["attention_prefill", "attention_merge"]


@pytest.mark.parametrize(
    ("number", "keys", "longest"),
    [(2, 192, LONGEST), (3, 64, LONGEST), (5, 64, LONGEST), (64, 64, LONGEST), (2, 64, 100)],
)
def test_any_way_to_deal_the_keys(
    number: int, keys: int, longest: int, device: OnTheHost, deal: Deal
) -> None:
    """Some parts have no key, and the last one takes all keys that remain. The given longest length
    may also be too short."""
    deal(number, keys)
    call = Shared(CASE.but(before=3, after=2))
    call.run(device, longest)
    assert launched(device) == BOTH
    call.is_right()


@pytest.mark.parametrize("longest", [None, 0, LONGEST])
def test_not_shared(longest: int | None, device: OnTheHost) -> None:
    """Keys are not split if the host does not know the longest length, or if there is little
    work."""
    call = Shared(CASE)
    call.run(device, longest)
    assert launched(device) == ["attention_prefill"]
    call.is_right()


def test_a_prepared_launch_has_the_operators_bits(device: OnTheHost, deal: Deal) -> None:
    """A launch may also be for another step, with another number of parts, or follow one without
    parts."""
    prepared = Shared(CASE).prepared(device)
    for number, case in ((3, CASE), (2, NEXT), (1, CASE), (4, NEXT)):
        deal(number, 128)
        by_operator = Shared(case).run(device).clone()
        device.mapped.library.forget_report()
        call = Shared(case)
        found = call.launch(device, prepared)
        assert len(launched(device)) == (2 if number > 1 else 1)
        assert torch.equal(found.view(torch.int16), by_operator.view(torch.int16))
        call.is_right(with_lse=False)


@pytest.mark.parametrize(
    ("case", "mask"),
    [
        (CASE.but(lengths=((150, 150), (65, 65)), layout=None), "part"),
        (CASE.but(head_size=256), "part"),
        (CASE.but(head_size=128, sliding_window=70), "window_part"),
        (CASE.but(head_size=128, sliding_window=70, sinks=True, causal=True), "window_part"),
        (CASE.but(sinks=True, causal=False), "part"),
    ],
)
def test_what_else_is_shared(case: Case, mask: str, device: OnTheHost, deal: Deal) -> None:
    deal(3, 64)
    call = Shared(case)
    call.run(device)
    parts, merge = sorted(kernels_of(device), key=lambda each: each.operator, reverse=True)
    assert (parts.facts["mask"], merge.operator) == (mask, "attention_merge")
    call.is_right()
    call.launch(device, call.prepared(device))
    call.is_right(with_lse=False)


@pytest.mark.parametrize(
    "changes",
    [{"sliding_window": 70}, {"head_size": 96}, {"logits_soft_cap": 5.0}, {"alibi": True}],
    ids=str,
)
def test_what_is_not_shared(changes: dict[str, Any], device: OnTheHost, deal: Deal) -> None:
    """Windows at d=64, padded heads, capped and biased scores: no kernel for parts computes
    them."""
    deal(3, 64)
    call = Shared(CASE.but(**changes))
    call.run(device)
    assert launched(device) == ["attention_prefill"]
    call.is_right()


@pytest.mark.parametrize("broken", ["_part", "attention_merge"])
def test_kernels_that_fail_their_self_check_are_not_used(
    broken: str, library: EmulatedLibrary, streams: dict[int, int], deal: Deal
) -> None:
    def check(device: object, operator: object, kernel: KernelEntry, index: int) -> Verdict:
        return refused("broken") if broken in kernel.name else SERVED

    device = OnTheHost(library, catalogue("gfx950"), check=check)
    deal(3, 128)
    call = Shared(CASE)
    call.run(device)
    assert launched(device) == ["attention_prefill"]
    call.is_right()
    assert call.prepared(device).shared is None
