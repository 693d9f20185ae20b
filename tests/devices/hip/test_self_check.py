"""The self-check of a kernel: passing results, failing results, and the consequences
(self_check.py)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip import (
    attention_decode,
    attention_parts,
    linear,
    quantize_fp8,
    quantize_mx,
)
from hk_backend.devices.hip.attention_prefill import OPERATOR as ATTENTION
from hk_backend.devices.hip.call import KernelCall
from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.devices.hip.operator import Problem
from hk_backend.kernels import Catalogue, KernelEntry, catalogue
from hk_backend.kernels.masks import PARTS
from hk_backend.terms.verdict import SERVED, Verdict, refused
from tests.devices.hip.device import OnTheHost, SynchronisesInChecks
from tests.devices.hip.test_device import BF16, KERNEL, LLAMA, run
from tests.integration.shared.e2e.broken_kernels import one_wrong_exponential
from tests.kernels.catalogues import selected, with_kernels
from tests.kernels.cover import covered, of_some_kinds
from tests.ops.cases import Case, make
from tests.ops.oracle import check_result, expected, nan
from tests.ops.strategies import FP8_DTYPES


@pytest.fixture
def fresh(library: EmulatedLibrary, streams: dict[int, int]) -> SynchronisesInChecks:
    """A device that has checked nothing yet."""
    return SynchronisesInChecks(library, catalogue("gfx950"))


def operator_of(entry: KernelEntry) -> Any:
    """The operator of a kernel. Kernels for parts of the keys and those that join the parts are
    checked together."""
    if entry.operator == "attention_merge" or entry.facts.get("mask") in PARTS:
        return attention_parts.PARTS
    found = {
        "attention_decode": attention_decode.OPERATOR,
        "gemm": linear.OPERATOR,
        "quantize_fp8": quantize_fp8.OPERATOR,
        "quantize_mx": quantize_mx.OPERATOR,
    }
    return found.get(entry.operator, ATTENTION)


EACH_TIME = 14
"""Kernels that each run checks, each of another kind; `make test-slow` checks them all."""


def kind_of(entry: KernelEntry) -> str:
    return " ".join(
        str(entry.facts.get(fact, "")) for fact in ("mask", "keys", "a", "scale", "format")
    )


EVERY = {f"{kind_of(entry)}: {entry.name}": [entry] for entry in catalogue("gfx950").kernels}


@pytest.mark.parametrize("entry", of_some_kinds("self-checks", EACH_TIME, EVERY))
def test_the_self_check_passes(entry: KernelEntry, fresh: SynchronisesInChecks) -> None:
    verdict = fresh.verify(operator_of(entry), entry, 0)
    assert verdict, verdict.why
    assert entry.symbol in fresh.mapped.library.report()["kernels"]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ({"operator": "gemm", "a": "bf16", "b": "bf16"}, {"a": "f16", "b": "f16"}),
        ({"operator": "quantize_fp8", "x": "bf16", "scale": "token"}, {"x": "f16"}),
    ],
)
def test_the_self_check_sees_another_kernel(
    right: dict[str, Any], wrong: dict[str, Any], fresh: SynchronisesInChecks
) -> None:
    """The kernel for float16 in bfloat16's place in the catalogue gives wrong numbers."""
    bf16, f16 = selected(**right), selected(**{**right, **wrong})
    swapped = replace(bf16, symbol=f16.symbol)
    device = SynchronisesInChecks(fresh.mapped.library, with_kernels(catalogue("gfx950"), swapped))
    why = device.verify(operator_of(bf16), swapped, 0).why
    assert f"{bf16.name} failed its self-check" in why


def test_a_kernel_that_fails_its_self_check_is_disabled(fresh: SynchronisesInChecks) -> None:
    """The kernel for float16 in bfloat16's place in the catalogue gives wrong numbers."""
    whole = catalogue("gfx950")
    f16 = selected(KERNEL.operator, **{**KERNEL.facts, "dtype": "f16", "stored": "f16"})
    wrong = replace(KERNEL, symbol=f16.symbol)
    device = SynchronisesInChecks(fresh.mapped.library, with_kernels(whole, wrong))
    verdict = device.verdict(LLAMA)
    assert not verdict
    assert f"{KERNEL.name} failed its self-check" in verdict.why
    assert device.verdict(replace(LLAMA, head_size=128)), "the others go on"
    call = make(Case(((4, 4),), 4, 2, 64, BF16))
    out = torch.zeros_like(call["query"])
    with pytest.raises(DeviceError, match="failed its self-check"):
        run(device, call, out, torch.zeros(4, 4))
    assert not out.any()


def test_alternatives_are_each_checked(fresh: SynchronisesInChecks) -> None:
    """The kernel for small calls computes wrong numbers, so another one serves them."""
    f16 = selected(KERNEL.operator, **{**KERNEL.facts, "dtype": "f16", "stored": "f16"})
    wrong = replace(KERNEL, name="wrong", symbol=f16.symbol, tile=replace(KERNEL.tile, rows=64))
    device = SynchronisesInChecks(fresh.mapped.library, with_kernels(catalogue("gfx950"), wrong))
    assert device.verdict(LLAMA)
    assert "wrong failed its self-check" in device.verify(ATTENTION, wrong, 0).why
    call = make(Case(((40, 40),), 4, 2, 64, BF16))
    out, lse = nan(*call["query"].shape, dtype=BF16), torch.full((4, 40), -torch.inf)
    untouched = out.clone()
    run(device, call, out, lse)
    check_result(expected(call, BF16), out, lse, untouched)


@pytest.fixture(scope="session")
def wrong_kernels() -> Catalogue:
    """A catalogue, whole and with right hashes, whose code computes another function."""
    return catalogue("gfx950", one_wrong_exponential())


@covered("attention_prefill")
def test_the_self_check_sees_one_wrong_instruction(
    entry: KernelEntry,
    wrong_kernels: Catalogue,
    library: EmulatedLibrary,
    streams: dict[int, int],
) -> None:
    device = SynchronisesInChecks(library, wrong_kernels)
    operator: Any = attention_parts.PARTS if entry.facts["mask"] in PARTS else ATTENTION
    why = device.verify(operator, wrong_kernels.kernel(entry.name), 0).why
    assert f"{entry.name} failed its self-check" in why


class OneWrong(SynchronisesInChecks):
    """A device that multiplies one of the results by `factor`."""

    result, factor = "", 1.0

    def launch(self, call: KernelCall, index: int) -> None:
        super().launch(call, index)
        call.tensors[self.result].mul_(self.factor)


@pytest.mark.parametrize("result", ["out", "lse"])
@pytest.mark.parametrize("factor", [1.05, float("nan")], ids=["a little off", "not written"])
def test_one_wrong_result_fails_the_self_check(
    result: str, factor: float, fresh: SynchronisesInChecks
) -> None:
    device = OneWrong(fresh.mapped.library, catalogue("gfx950"))
    device.result, device.factor = result, factor
    why = device.verdict(LLAMA).why
    assert f"{KERNEL.name} failed its self-check on cpu: error " in why


@pytest.mark.parametrize(("error", "passes"), [(1.0, True), (1.001, False)])
def test_the_limit_is_the_problems_own(
    error: float, passes: bool, fresh: SynchronisesInChecks
) -> None:
    def problem_of(kernel: KernelEntry) -> Problem:
        whole = ATTENTION.self_check_problem(kernel)
        expected = {"out": (whole.expected["out"][0], lambda found, expected: error)}
        return replace(whole, expected=expected, limit=1.0)

    operator: Any = SimpleNamespace(
        prepare=ATTENTION.prepare, self_check_problem=problem_of, ways=ATTENTION.ways
    )
    assert bool(fresh.verify(operator, KERNEL, 0)) == passes


def test_a_kernel_is_checked_once_on_each_gpu(
    library: EmulatedLibrary, streams: dict[int, int]
) -> None:
    asked = []

    def check(device: object, operator: object, kernel: KernelEntry, index: int) -> Verdict:
        asked.append(index)
        return refused("a test") if index else SERVED

    device = OnTheHost(library, catalogue("gfx950"), check=check)
    for index in (0, 1, 1, 0):
        assert bool(device.verify(ATTENTION, KERNEL, index)) == (not index)
    assert asked == [0, 1]
    assert device.verify(linear.OPERATOR, replace(KERNEL, operator="gemm"), 0)
    assert asked == [0, 1, 0], "operators whose kernels share a name share no verdict"


@pytest.mark.parametrize("scale", ["key_scale", "value_scale"])
def test_the_scale_of_the_wrong_head_fails_the_self_check(
    scale: str, fresh: SynchronisesInChecks
) -> None:
    """All heads are scaled by the first head's scale, like a kernel that ignores its head's
    number."""

    class OfOneHead(SynchronisesInChecks):
        def launch(self, call: KernelCall, index: int) -> None:
            super().launch(replace(call, numbers={**call.numbers, f"{scale}_head": 0}), index)

    device = OfOneHead(fresh.mapped.library, catalogue("gfx950"))
    request = replace(LLAMA, kv_dtype=FP8_DTYPES[0], paged=True, block_size=16)
    why = device.verdict(request).why
    assert "attention_prefill_bf16_d64_paged_e4m3 failed its self-check" in why


def test_the_self_check_has_its_problem_on_the_host(fresh: SynchronisesInChecks) -> None:
    """An engine makes its GPU torch's default device; the reference still runs on the host, where
    it is exact."""
    with torch.device("meta"):
        assert fresh.verdict(LLAMA)


class FaultsInChecks(OnTheHost):
    """A device that stops at the check: torch raises an error when it waits."""

    def launch(self, call: KernelCall, index: int) -> None:
        raise RuntimeError("HIP error: an illegal memory access was encountered")


def test_a_kernel_that_stops_the_gpu_is_disabled(fresh: SynchronisesInChecks) -> None:
    device = FaultsInChecks(fresh.mapped.library, catalogue("gfx950"))
    for _ in range(2):
        why = device.verdict(LLAMA).why
        assert (
            f"{KERNEL.name} cannot run on device 0 of hip:gfx950: RuntimeError: HIP error: an "
            "illegal memory access" in why
        )
    call = make(Case(((4, 4),), 4, 2, 64, BF16))
    with pytest.raises(DeviceError, match="an illegal memory access"):
        run(device, call, torch.zeros_like(call["query"]), torch.zeros(4, 4))
