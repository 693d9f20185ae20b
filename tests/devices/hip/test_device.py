"""The hip device itself: only the GPU below it differs from production (device.py)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip import device as hip
from hk_backend.devices.hip import library as hip_library
from hk_backend.devices.hip.device import HipDevice, hip_device
from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.devices.hip.library import HipError
from hk_backend.kernels import catalogue
from hk_backend.kernels.catalogue import CODE_OBJECTS
from hk_backend.ops import AttentionRequest
from hk_backend.reference import merge_attention as merged_by_definition
from hk_backend.terms.attention_arguments import AttentionArguments, MergeArguments
from hk_backend.terms.verdict import SERVED
from tests.devices.hip.device import OnTheHost, SynchronisesInChecks
from tests.devices.hip.graph import Graph
from tests.kernels.catalogues import selected, with_kernels
from tests.ops.cases import Case, make
from tests.ops.oracle import check_result, expected, nan

BF16 = torch.bfloat16
LLAMA = AttentionRequest("cpu", BF16, 4, 2, 64)
KERNEL = selected("attention_prefill", dtype="bf16", head_size=64, keys="packed")


def run(device: HipDevice, call: dict[str, Any], out: torch.Tensor, lse: torch.Tensor) -> None:
    """Calls the device's own method, as the operator does."""
    device.run(AttentionArguments(**call, out=out, lse=lse))


@pytest.mark.parametrize("index", [0, 1])
def test_a_forward_enqueues_and_waits_for_nothing(
    index: int, library: EmulatedLibrary, streams: dict[int, int]
) -> None:
    device = OnTheHost(library, catalogue("gfx950"), index)
    device._verdicts[KERNEL.operator, KERNEL.name, index] = SERVED  # at a layer's construction
    call = make(Case(((40, 40), (5, 70)), 4, 2, 64, BF16))
    out = nan(*call["query"].shape, dtype=BF16)
    lse = torch.full((4, 45), -torch.inf)
    untouched = out.clone()
    run(device, call, out, lse)
    assert library.report()["synchronising_calls"] == 0
    assert out.isnan().all(), "it ran before anything waited"
    library.synchronise(streams[index])
    check_result(expected(call, BF16), out, lse, untouched)


def test_no_first_use_in_a_graph_capture(library: EmulatedLibrary, streams: dict[int, int]) -> None:
    """A self-check would break a capture; after it, the kernel is checked and used."""
    device = SynchronisesInChecks(library, catalogue("gfx950"))
    graph = Graph(library, streams[0])
    call = make(Case(((4, 4),), 4, 2, 64, BF16))
    assert not device.is_capturing()
    with graph.capture():
        assert device.is_capturing()
        assert "cannot be in a graph capture" in device.verdict(LLAMA).why
        with pytest.raises(DeviceError, match="its first use cannot be in a graph capture, call"):
            run(device, call, torch.zeros_like(call["query"]), torch.zeros(4, 4))
    assert not graph.node_types(), "and the capture is whole"
    assert device.verdict(LLAMA)


def test_tensors_of_the_host_are_refused(library: EmulatedLibrary) -> None:
    """Under HK_DEVICE=hip, a tensor in host memory is refused: no GPU can read it."""
    call = make(Case(((4, 4),), 4, 2, 64, BF16))
    device = HipDevice(library, catalogue("gfx950"))
    assert "tensors on cpu with the device hip:gfx950" in device.verdict(LLAMA).why
    with pytest.raises(ValueError, match=r"query: a tensor on cpu is not valid .* expected cuda"):
        run(device, call, torch.zeros_like(call["query"]), torch.zeros(4, 4))


def test_a_kernel_that_cannot_be_loaded_is_disabled(
    library: EmulatedLibrary, streams: dict[int, int], tmp_path: Any
) -> None:
    whole = catalogue("gfx950")
    gone = replace(KERNEL, path=tmp_path / "gone.co")
    verdict = SynchronisesInChecks(library, with_kernels(whole, gone)).verdict(LLAMA)
    assert not verdict
    assert "cannot run" in verdict.why
    assert "gone.co" in verdict.why


def test_a_damaged_index_is_a_refusal(library: EmulatedLibrary, tmp_path: Path) -> None:
    """A damaged index, read on first use, is a refusal: the engine goes on without HK."""
    folder = Path(shutil.copytree(CODE_OBJECTS, tmp_path / "codeobjects"))
    (folder / "gfx950" / "attention_prefill.json").write_text("{}")
    verdict = OnTheHost(library, catalogue("gfx950", folder)).verdict(LLAMA)
    assert not verdict
    assert "attention_prefill.json is damaged: KeyError" in verdict.why


def test_foreign_streams_are_rejected(library: EmulatedLibrary, streams: dict[int, int]) -> None:
    device = OnTheHost(library, catalogue("gfx950"))
    device._verdicts[KERNEL.operator, KERNEL.name, 0] = SERVED
    call = make(Case(((4, 4),), 4, 2, 64, BF16))
    out, lse = torch.zeros_like(call["query"]), torch.zeros(4, 4)
    streams[0] = streams[1]
    with pytest.raises(DeviceError, match="is of device 1, tensors of 0"):
        run(device, call, out, lse)
    streams[0] = 0x7F0000000010  # a stream of another runtime
    with pytest.raises(HipError, match=r"hipStreamGetDevice: hipErrorContextIsDestroyed \(709\)"):
        run(device, call, out, lse)


def test_merging(library: EmulatedLibrary) -> None:
    """The merge is in place. A side without keys does not count, whatever it holds."""
    random = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 9, 3, 16, generator=random).to(BF16)
    lse_a, lse_b = torch.randn(2, 3, 9, generator=random)
    lse_a[0], lse_b[:, 4] = -torch.inf, -torch.inf
    a[:, 0], b[4] = torch.nan, torch.nan
    out, lse = a.clone(), torch.empty(3, 9)
    HipDevice(library, catalogue("gfx950")).run(MergeArguments(out, lse_a, b, lse_b, out, lse))
    exact, exact_lse = merged_by_definition(a, lse_a, b, lse_b)
    assert torch.allclose(out.double(), exact, rtol=2.0**-8, atol=1e-5)
    assert torch.allclose(lse.double(), exact_lse, atol=1e-5)
    assert (out[4, 0] == 0).all()


# --- this machine's GPUs ----------------------------------------------------------------------


@pytest.fixture
def mapped(library: EmulatedLibrary, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedLibrary]:
    """The emulated library, found in the process as if it were ROCm's."""
    monkeypatch.setattr(hip, "mapped_library", lambda: library)
    hip_device.cache_clear()
    yield library
    hip_device.cache_clear()


def test_the_device_of_this_machine(mapped: EmulatedLibrary) -> None:
    assert hip_device().name == "hip:gfx950"


def test_reasons_why_there_is_none(
    mapped: EmulatedLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped.reset("gfx950", 0)
    with pytest.raises(DeviceError, match="sees no GPU"):
        hip_device()
    mapped.reset("gfx942", 1)
    with pytest.raises(DeviceError, match="no kernels for 'gfx942'"):
        hip_device()
    monkeypatch.setattr(hip, "mapped_library", hip_library.mapped_library)
    with pytest.raises(DeviceError, match="no HIP runtime"):
        hip_device()
