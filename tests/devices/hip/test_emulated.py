"""The public operator under HK_DEVICE=emulated:gfx950, with the code objects that ship.

Results stay within the rounding bounds of a float64 reference (tests/ops/oracle.py). Every byte
that must not matter holds NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hk_backend.config import get_config
from hk_backend.devices import DeviceError, device_for
from hk_backend.devices.hip import emulated
from hk_backend.devices.hip.device import HipDevice
from hk_backend.devices.hip.emulated import (
    EmulatedLibrary,
    EmulatorError,
)
from hk_backend.ops import AttentionRequest, attention_prefill, supports
from tests.kernels.attention_launch import SPLIT_LAYOUTS
from tests.ops.cases import Case, make
from tests.ops.oracle import check

BF16, F16 = torch.bfloat16, torch.float16
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
RAGGED = ((1, 1), (31, 31), (70, 70), (2, 2), (0, 0))
EXTENDS = ((1, 65), (33, 161), (16, 16), (2, 300))


@pytest.fixture(autouse=True)
def gfx950(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HK_DEVICE", "emulated:gfx950")
    get_config.cache_clear()
    yield
    monkeypatch.undo()
    get_config.cache_clear()


@pytest.fixture
def library() -> Iterator[EmulatedLibrary]:
    """The emulated library of the device that the operators use."""
    device = device_for("cpu")
    assert isinstance(device, HipDevice)
    found = device.library
    assert isinstance(found, EmulatedLibrary)
    found.forget_report()
    yield found
    found.use_threads(torch.get_num_threads())
    found.forget_report()


def case(
    lengths: tuple[tuple[int, int], ...],
    heads: tuple[int, int],
    head_size: int,
    dtype: torch.dtype,
    layout: str | None = None,
    block_size: int = 16,
    kv_dtype: torch.dtype | None = None,
    **more: Any,
) -> Case:
    return Case(lengths, *heads, head_size, dtype, kv_dtype, layout, block_size, **more)


@pytest.mark.parametrize(
    "of",
    [
        case(RAGGED, (4, 1), 64, BF16),
        case(RAGGED, (3, 3), 128, BF16, before=3, after=5),
        case(((257, 257),), (2, 1), 128, F16),
        case(EXTENDS, (4, 2), 64, BF16, "NHD, two tensors"),
        case(EXTENDS, (2, 1), 128, BF16, "one [B,H,N,2D]", 32),
        case(EXTENDS, (2, 2), 128, F16, "one [2,B,N,H,D]", 128, causal=False),
        case(EXTENDS, (4, 1), 64, BF16, "one [B,H,N,2D], NHD strides", before=2),
        case(EXTENDS, (4, 2), 64, BF16, "NHD, two tensors", 1),
        case(EXTENDS, (2, 1), 128, F16, "one [B,H,N,2D]", 12),
        case(((40, 40),), (2, 1), 64, BF16, scale=-0.2),
        case(((40, 70),), (2, 1), 64, BF16, v_scale="number", k_scale="number", magnitude=6.0),
        case(EXTENDS, (4, 2), 64, BF16, "NHD, two tensors", 32, E4M3, k_scale="per head"),
        case(EXTENDS, (4, 2), 128, BF16, "one [B,H,N,2D]", 16, E4M3, v_scale="per head"),
        case(EXTENDS, (2, 2), 64, F16, "HND, two tensors", 1, E4M3, k_scale="one", v_scale="one"),
        case(EXTENDS, (2, 1), 64, BF16, "one [B,N,H,2D]", 12, E4M3, k_scale="number"),
        case(EXTENDS, (4, 2), 128, F16, SPLIT_LAYOUTS[0], 16, E4M3, v_scale="per head"),
        case(EXTENDS, (4, 2), 64, BF16, SPLIT_LAYOUTS[1], 48, E4M3, k_scale="per head"),
    ],
    ids=str,
)
def test_within_rounding_of_the_reference(of: Case, library: EmulatedLibrary) -> None:
    check(make(of), weights_dtype=of.dtype)
    kernels = library.report()["kernels"]
    (name,) = kernels
    dtype = "bf16" if of.dtype is BF16 else "f16"
    paged = {1: "tokens", 12: "any_pages"}.get(of.block_size, "paged")
    if of.layout in SPLIT_LAYOUTS:
        paged = "split"
    keys = "packed" if of.layout is None else paged
    stored = "_e4m3" if of.kv_dtype == E4M3 else ""
    # so small a launch takes the smallest tile
    smallest = "_r128" if stored else "_r64"
    rows = smallest if of.head_size == 128 and keys != "any_pages" else ""
    assert name == f"attention_prefill_{dtype}_d{of.head_size}_{keys}{stored}{rows}"
    assert kernels[name]["launches"] == 1
    assert kernels[name]["counters"]["matrix_flops"] > 0


def test_strided_tensors(library: EmulatedLibrary) -> None:
    """Query, key and value are slices of one fused projection, as in engines."""
    call = make(case(((50, 50), (9, 9)), (4, 2), 64, BF16))
    fused = torch.cat([call[name].flatten(1) for name in ("query", "key", "value")], dim=1)
    query, key, value = fused.split([4 * 64, 2 * 64, 2 * 64], dim=1)
    call |= {
        "query": query.view(-1, 4, 64),
        "key": key.view(-1, 2, 64),
        "value": value.view(-1, 2, 64),
    }
    wide = torch.empty(59, 6, 64, dtype=BF16)
    check(call, wide[:, 1:5], weights_dtype=BF16)


def test_little_to_do(library: EmulatedLibrary) -> None:
    """A row without a key is zero. Without tokens or requests there is no launch, and rows without
    a request stay as they were."""
    check(make(case(((5, 0),), (2, 1), 64, BF16, causal=False)), weights_dtype=BF16)
    assert list(library.report()["kernels"]) == ["attention_prefill_bf16_d64_packed"]
    library.forget_report()
    check(make(case(((0, 0),), (2, 1), 64, BF16)))
    query = torch.zeros(4, 2, 64, dtype=BF16)
    starts = torch.tensor([2], dtype=torch.int32)
    out = torch.full_like(query, 3.0)
    attention_prefill(query, query, query, query_start_loc=starts, out=out)
    assert (out == 3).all()
    assert library.report()["kernels"] == {}


def test_a_finding_is_an_error(library: EmulatedLibrary) -> None:
    """A caller claims keys that it does not have: on a GPU these would be somebody else's
    memory."""
    call = make(case(((40, 40),), (2, 1), 64, BF16))
    call["key_start_loc"] = torch.tensor([0, 5000], dtype=torch.int32)
    with pytest.raises(EmulatorError, match=r"out-of-bounds.*attention_prefill_bf16_d64_packed"):
        attention_prefill(**call)
    assert library.report()["findings"] == []
    del call["key_start_loc"]
    check(call, weights_dtype=BF16)  # the device still works


# --- what it does not serve -------------------------------------------------------------------


IN_E4M3 = {"kv_dtype": E4M3, "layout": "one [B,H,N,2D]"}


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"dtype": torch.float32}, "query"),
        ({"head_size": 80, **IN_E4M3}, "query"),
        ({**IN_E4M3, "kv_dtype": E5M2}, "key"),
        ({"kv_dtype": E4M3}, "key"),
        ({"sliding_window": 8, "causal": False}, "sliding_window"),
        ({"logits_soft_cap": 1e6}, "logits_soft_cap"),
        ({"alibi": True, "causal": False}, "alibi_slopes"),
        ({"k_scale": "one"}, "k_scale"),
        ({"v_scale": "per head"}, "v_scale"),
        ({"layout": "CPU_ATTN: K [D,N], V [N,D], one storage"}, "paged_kv"),
    ],
)
def test_a_call_that_is_not_served_is_refused_before_anything_is_written(
    changes: dict[str, Any], argument: str, library: EmulatedLibrary
) -> None:
    call = make(Case(((5, 9),), 4, 2, 64, BF16).but(**changes))
    out = torch.full_like(call["query"], 3.0)
    with pytest.raises(ValueError, match=f"^{argument}: .* is not valid on this device: expected"):
        attention_prefill(**call, out=out)
    assert (out == 3).all()
    assert library.report()["kernels"] == {}


def test_an_installation_without_the_emulator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(emulated, "LIBRARY", tmp_path / "libhk_emulated_hip.so")
    emulated.emulated_device.cache_clear()
    with pytest.raises(DeviceError, match=r"the emulator cannot be loaded .*: reinstall"):
        device_for("cpu")
    assert "the emulator cannot be loaded" in supports(AttentionRequest("cpu", BF16, 4, 2, 64)).why
