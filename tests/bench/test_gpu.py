"""`hk-backend time --measure` on the emulated device: the launch path, whatever its clocks are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hk_backend.bench.gpu import measure
from hk_backend.bench.gpu.launches import LONGER, Runner
from hk_backend.config import get_config
from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip import emulated
from hk_backend.kernels import catalogue
from hk_backend.kernels.catalogue import MEASURING
from hk_backend.timing.measured import PARAMETERS
from hk_backend.timing.rows import rows

LOOP = 3  # instructions around a step


@pytest.fixture(autouse=True)
def reset() -> Iterator[None]:
    """The emulated device of other tests is not the one that was reset here."""
    get_config.cache_clear()
    yield
    get_config.cache_clear()
    emulated.EmulatedLibrary(emulated.LIBRARY).reset("gfx950")


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_every_row_that_the_arch_has_a_kernel_for(
    arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HK_DEVICE", f"emulated:{arch}")
    said: list[str] = []
    found = measure.measure(measure.gpu(), say=said.append)
    assert said == list(found.rows)
    assert (found.arch, found.device, found.emulated) == (arch, f"emulated:{arch}", True)
    missing = [row for row in rows() if row.name not in found.rows]
    assert set(found.parameters) < set(PARAMETERS)  # clocks that count instructions, or 0 of them
    if arch == "gfx950":
        assert missing == []
    else:
        of_gfx950 = catalogue("gfx950", MEASURING).kernels
        only = {e.facts["run"] for e in of_gfx950 if e.path.stem == "measure_gfx950"}
        assert {row.kernel for row in missing} == only


def test_what_a_row_finds_is_the_difference_of_its_launches() -> None:
    """Here in instructions: 64 and the loop's in a step, of one wave or of each."""
    gpu = measure.emulated("gfx950")
    waves = {"s_nop_0": [0], "fma_f32_shared": [0, 4], "barrier_2": [0, 1], "clock": [*range(8)]}
    found = measure.measure(gpu, [row for row in rows() if row.name in waves])
    for name, each in waves.items():
        assert found.rows[name].clocks == dict.fromkeys(each, (64 + LOOP) / 64)
    assert found.rows["clock"].workgroups == gpu.compute_units
    assert 64 + LOOP <= found.rows["s_nop_0"].alone < 2 * (64 + LOOP)


def test_rows_of_many_workgroups_differ_in_these(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = measure.emulated("gfx950")
    launched: list[tuple[int, int]] = []
    enqueue = Runner._enqueue

    def noted(self: Runner, workgroups: int, steps: int) -> object:
        launched.append((workgroups, steps))
        return enqueue(self, workgroups, steps)

    monkeypatch.setattr(Runner, "_enqueue", noted)
    measure.measure(gpu, [row for row in rows() if row.many])
    assert set(launched) == {(gpu.compute_units, 0), (LONGER * gpu.compute_units, 0)}


@pytest.mark.parametrize("device", ["cpu", "cpu:avx2"])
def test_a_cpu_is_refused(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HK_DEVICE", device)
    with pytest.raises(DeviceError, match=f"HK_DEVICE={device}: only a GPU"):
        measure.gpu()


def test_no_gpu_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HK_DEVICE", "auto")
    with pytest.raises(DeviceError):
        measure.gpu()
