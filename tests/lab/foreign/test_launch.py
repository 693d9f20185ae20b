"""Launches of any code object: what is mapped and when, and how a grid of unknown work is timed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hk_backend import _emulator
from hk_backend.lab.foreign.launch import PAIRS, EmulatedGpu, evenly
from hk_backend.lab.timing.model import Modelled
from tests.emulator.assembly import Declared, Program, kernel_of
from tests.lab.foreign.scale import POINTERS, SCALE

# Each wave adds 1.0 to v2 `turns` times; then lane 0 stores nothing.
LOOP = Program(
    """
  s_load_dword s4, s[0:1], 0x0
  v_mov_b32 v2, 0
  s_waitcnt lgkmcnt(0)
again:
  v_add_f32 v2, 1.0, v2
  s_sub_u32 s4, s4, 1
  s_cmp_lg_u32 s4, 0
  s_cbranch_scc1 again""",
    first=(Declared("by_value", 0, 4, "turns"),),
)
# out[y * 8 + x] = 100 * y + x
PLACES = Program(
    """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_bfe_u32 v1, v0, 10, 10
  v_and_b32 v0, 0x3ff, v0
  v_mul_u32_u24 v2, 100, v1
  v_add_u32 v2, v2, v0
  v_lshl_add_u32 v3, v1, 3, v0
  v_lshlrev_b32 v3, 2, v3
  s_waitcnt lgkmcnt(0)
  global_store_dword v3, v2, s[6:7]""",
    first=POINTERS,
    directives=".amdhsa_system_vgpr_workitem_id 1",
)


class Mapped:
    """A machine that keeps a list of what is mapped."""

    def __init__(self, machine: _emulator.Machine) -> None:
        self._machine = machine
        self.now: dict[int, str] = {}
        self.ever: list[tuple[int, int, str]] = []

    def map(self, host: int, size: int, name: str) -> int:
        address = self._machine.map(host, size, name)
        self.now[address] = name
        self.ever.append((host, size, name))
        return address

    def unmap(self, address: int) -> None:
        del self.now[address]
        self._machine.unmap(address)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)


@pytest.fixture(params=["gfx942", "gfx950"])
def gpu(request: pytest.FixtureRequest) -> Iterator[EmulatedGpu]:
    made = EmulatedGpu(request.param)
    made.machine = Mapped(made.machine)  # type: ignore[assignment]
    yield made
    assert not made.machine.now, "tensors are mapped for the launch only"  # type: ignore[attr-defined]


def ever(gpu: EmulatedGpu) -> list[tuple[int, int, str]]:
    """(address, bytes, name) of all that was mapped."""
    found: list[tuple[int, int, str]] = gpu.machine.ever  # type: ignore[attr-defined]
    return found


def scale(gpu: EmulatedGpu) -> _emulator.Kernel:
    return kernel_of(SCALE, gpu.arch)


def test_a_launch(gpu: EmulatedGpu) -> None:
    x, out = torch.randn(100), torch.full((100,), torch.nan)
    done = gpu.launch(scale(gpu), [2], 64, [x, out, 100, 0.25])
    assert not done.findings
    assert torch.equal(out, x / 4)
    assert (done.kernel, done.grid, done.block, done.modelled) == (done.kernel, (2,), (64,), None)
    assert done.counters is not None
    assert done.counters.bytes["global_write"] == 400
    assert [(size, name) for _, size, name in ever(gpu)] == [
        (400, "argument 0"),
        (400, "argument 1"),
    ]


def test_a_storage_is_mapped_once_and_whole(gpu: EmulatedGpu) -> None:
    """Two views of one storage, of which one begins within it."""
    both = torch.cat([torch.arange(64.0), torch.full((64,), torch.nan)])
    done = gpu.launch(scale(gpu), [1], 64, [both[:64], both[64:], 64, 2.0])
    assert not done.findings
    assert torch.equal(both[64:], 2 * both[:64])
    assert ever(gpu) == [(both.data_ptr(), 512, "argument 0")]
    past = gpu.launch(scale(gpu), [1], 64, [both, both[65:], 64, 2.0])
    assert {found.check for found in past.findings} == {"out-of-bounds"}


def test_an_empty_tensor_is_a_null_pointer(gpu: EmulatedGpu) -> None:
    done = gpu.launch(scale(gpu), [1], 64, [torch.empty(0), torch.empty(0), 0, 1.0])
    assert not done.findings
    assert ever(gpu) == []


def test_nothing_stays_mapped_after_an_error(gpu: EmulatedGpu) -> None:
    """The fixture looks for what stayed mapped."""
    x = torch.zeros(64)
    for method in (gpu.launch, gpu.time):
        with pytest.raises(ValueError, match="number 2"):
            method(scale(gpu), [1], 64, [x, x, "64", 1.0])
        with pytest.raises(ValueError, match="block of 2048"):
            method(scale(gpu), [1], 2048, [x, x, 64, 1.0])
    with pytest.raises(RuntimeError, match="out-of-bounds"):
        gpu.time(scale(gpu), [1], 64, [x, torch.zeros(4), 64, 1.0])


def test_a_block_in_two_dimensions(gpu: EmulatedGpu) -> None:
    out = torch.zeros(5, 8, dtype=torch.int32)
    kernel = kernel_of(PLACES, gpu.arch)
    done = gpu.launch(kernel, [1], [8, 5], [None, out])
    assert not done.findings
    assert done.block == (8, 5)
    assert torch.equal(out, 100 * torch.arange(5)[:, None] + torch.arange(8))
    timed = gpu.time(kernel, [1, 2], [8, 5], [None, out])
    assert timed.block == (8, 5)
    assert timed.modelled is not None


def test_the_clock_is_monotone_in_work(gpu: EmulatedGpu) -> None:
    """More turns of a loop, and more rounds of workgroups over the CUs, take longer."""
    kernel = kernel_of(LOOP, gpu.arch)

    def modelled(turns: int, workgroups: int) -> Modelled:
        done = gpu.time(kernel, [workgroups], 256, [turns])
        assert done.modelled is not None
        return done.modelled

    by_turns = [modelled(turns, 8) for turns in (1, 100, 1000, 4000)]
    times = [found.microseconds for found in by_turns]
    assert times == sorted(set(times))
    assert times[0] > 0
    # a SIMD issues an instruction of a wave in a clock at best, and a turn has four of them
    assert by_turns[3].clocks - by_turns[2].clocks >= 4 * 3000
    by_grid = [modelled(100, count).microseconds for count in (8, 10_000, 20_000, 40_000)]
    assert by_grid == sorted(set(by_grid))


def test_a_timed_launch_executes_its_samples_only(gpu: EmulatedGpu) -> None:
    count = 64 * 1000
    x, out = torch.ones(count), torch.zeros(count)
    gpu.time(scale(gpu), [1000], 64, [x, out, count, 3.0])
    written = (out.view(1000, 64) == 3).all(1)
    assert written.nonzero().flatten().tolist() == list(evenly(1000).samples)


@given(st.integers(1, 5000))
def test_evenly(workgroups: int) -> None:
    """Neighbours of one amount of work are traced in pairs, from the first to the last pair."""
    found = evenly(workgroups)
    samples = list(found.samples)
    assert samples == sorted(set(samples))
    assert samples[0] == 0
    assert samples[-1] in range(max(workgroups - 3, 0), workgroups)
    assert min(workgroups - 1, 2 * PAIRS) <= len(samples) <= 2 * PAIRS
    assert len(found.work) == workgroups
    assert all(found.work[1:] >= found.work[:-1])
    for number in samples:
        neighbour = number ^ 1
        assert neighbour in samples or neighbour == workgroups
        assert found.work[number] == found.work[min(neighbour, workgroups - 1)]
    gaps = [after - before for before, after in zip(samples[::2], samples[2::2], strict=False)]
    assert not gaps or max(gaps) - min(gaps) <= 4
