"""The shipped micro-kernels on the timing model: published peaks and rates come out, and what the
rows would measure on a GPU that is the model are the model's own parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from hk_backend import _emulator
from hk_backend.timing.measured import PARAMETERS
from hk_backend.timing.rows import ALL, MATRIX, Found
from tests.timing.modelled_rows import ROWS, found, kernel_of

FLOPS = {"16x16": 2 * 16 * 16, "32x32": 2 * 32 * 32}  # for each of the depth
# Dense peak TFLOP/s (TOP/s) of whole products, by AMD's product pages
MI355X = {
    "bf16": 2500,
    "f16": 2500,
    "fp8": 5000,
    "i8": 5000,
    "fp6": 10000,
    "fp4": 10000,
    "f32": 157.3,
}
MI300X = {"bf16": 1307.4, "f16": 1307.4, "fp8": 2614.9, "i8": 2614.9, "f32": 163.4}
MI355X |= {"mxfp8": 5000, "fp8_fp4": 5000, "fp6": 10000, "fp4": 10000, "mxfp4": 10000}
PEAKS = {"gfx950": MI355X, "gfx942": MI300X}
CLOCKED_UNITS = {"gfx950": 256 * 2.4e9, "gfx942": 304 * 2.1e9}  # compute units times peak clock
# gfx950 has these, and at most at the rates of gfx942 or of its own bf16 (LLVM's scheduling model)
HALF_RATE = {
    "bf16_16x16x16", "bf16_32x32x8", "f16_16x16x16", "f16_32x32x8", "fp8_16x16x32", "fp8_32x32x16",
    "i8_16x16x32", "i8_32x32x16",
}  # fmt: skip


def matrix_cases() -> list[tuple[str, str, str]]:
    return [
        (arch, name, kind)
        for arch in PEAKS
        for name in MATRIX
        for kind in ("dependent", "independent")
        if kernel_of(f"mfma_{name}_{kind}", arch)
    ]


@pytest.mark.parametrize(("arch", "name", "kind"), matrix_cases())
def test_matrix_chains_reach_the_published_peak(arch: str, name: str, kind: str) -> None:
    """With two waves on each SIMD, on one accumulator each or on four."""
    dtype, _, shape = name.rpartition("_")
    edge, depth = shape.rsplit("x", 1)
    row = replace(ROWS[f"mfma_{name}_{kind}"], waves=ALL)
    clocks = max(found(row, arch).clocks.values())
    flops = 8 * FLOPS[edge] * int(depth) / clocks * CLOCKED_UNITS[arch] / 1e12
    peak = PEAKS[arch][dtype] * (0.5 if arch == "gfx950" and name in HALF_RATE else 1)
    assert flops == pytest.approx(peak, rel=0.01)


@pytest.mark.parametrize(
    ("arch", "name", "width", "published"),
    [
        ("gfx950", "lds_read_b128", 16, 256),
        ("gfx950", "lds_read_b64", 8, 128),
        ("gfx950", "lds_read_b32", 4, 128),
        ("gfx950", "lds_write_b64", 8, 128),
        ("gfx950", "lds_write_b128", 16, 128),
        ("gfx942", "lds_read_b128", 16, 128),
        ("gfx942", "lds_read_b64", 8, 128),
        ("gfx942", "lds_read_b32", 4, 128),
    ],
)
def test_lds_reaches_the_published_bandwidth(
    arch: str, name: str, width: int, published: int
) -> None:
    """But for the last wave, which has the LDS to itself for a while and cannot fill it."""
    assert rate(found(ROWS[name], arch), 64 * width) == pytest.approx(published, rel=0.08)


def rate(row: Found, amount: float) -> float:
    """Of eight waves in a clock."""
    return 8 * amount / max(row.clocks.values())


def test_a_stream_of_all_compute_units_reaches_what_hbm_sustains() -> None:
    """Each reads memory of its own; at the end not all waves are left to fill the queues."""
    row = replace(ROWS["hbm_read"], memory=8 << 20)
    clocks = max(found(row, active=256).clocks.values())
    bytes_per_second = 256 * 8 * 1024 / clocks * 2.4e9
    assert bytes_per_second == pytest.approx(parameter("hbm") * 1e12, rel=0.03)


def parameter(name: str, arch: str = "gfx950") -> float:
    return _emulator.TimingParameters(arch)[name]


SHARED = ("l2_read", "l2_latency")
"""Rows whose memory other workgroups must read too: for the model that is what L2 holds. Of three
each comes round all of it."""


class Modelled(Mapping[str, Found]):
    """The rows on the model of `arch` with `changes`, each when it is first asked for."""

    def __init__(self, arch: str, changes: Mapping[str, float]) -> None:
        self._arch, self._changes = arch, dict(changes)
        self._found: dict[str, Found] = {}

    def __getitem__(self, name: str) -> Found:
        if name not in self:
            raise KeyError(name)
        if name not in self._found:
            shared = {"l2_hits": 1.0} if name in SHARED else {}
            self._found[name] = found(
                ROWS[name], self._arch, self._changes | shared, workgroups=3 if shared else 1
            )
        return self._found[name]

    def __contains__(self, name: object) -> bool:
        return name in ROWS and kernel_of(ROWS[str(name)].kernel, self._arch) is not None

    def __iter__(self) -> Iterator[str]:
        return (name for name in ROWS if name in self)

    def __len__(self) -> int:
        return len(list(iter(self)))


EXACT = {"rel": 0.02, "abs": 0.5}
SATURATED = {"rel": 0.08, "abs": 0.0}  # a wave is left over; SIMDs issue in slots of 4 clocks
ONE_SLOT = {"rel": 0.02, "abs": 4.0}  # and latencies end between slots
CLOSED = {
    **dict.fromkeys(("issue", "branch_taken", "vector", "vector_wide", "vector_swap"), EXACT),
    **dict.fromkeys(("transcendental", "matrix", "matrix_issue"), EXACT),
    **dict.fromkeys(("lds_read_b128", "lds_read_b64", "lds_read_b32", "lds_write"), SATURATED),
    **dict.fromkeys(("lds_read_transposed", "vector_memory", "l2"), SATURATED),
    **dict.fromkeys(("barrier_release", "lds_latency", "scalar_latency"), ONE_SLOT),
    "l1_latency": {"rel": 0.02, "abs": 8.0},  # after the address path's own slot
    "l2_latency": {"rel": 0.05, "abs": 0.0},
}
"""How near what is measured must come, by what the model does between the lines."""
OTHER = {
    "branch_taken": 32, "barrier_release": 40, "vector_wide": 16, "vector_swap": 4,
    "transcendental": 16, "matrix": 2, "matrix_issue": 8, "matrix_forward": 60,
    "lds_read_b128": 128, "lds_read_b64": 64, "lds_read_b32": 64, "lds_write": 64,
    "lds_read_transposed": 256, "lds_latency": 64, "vector_memory": 32, "l1_latency": 200,
    "l2": 32, "l2_latency": 700, "scalar_latency": 400,
}  # fmt: skip


@pytest.mark.parametrize(
    ("arch", "name"), [(arch, name) for arch in PEAKS for name in CLOSED], ids=str
)
def test_the_rows_measure_the_model_s_parameters(arch: str, name: str) -> None:
    if (arch, name) == ("gfx942", "lds_read_transposed"):
        with pytest.raises(KeyError):
            PARAMETERS[name](Modelled(arch, {}))
        return
    measured = PARAMETERS[name](Modelled(arch, {}))
    assert measured == pytest.approx(parameter(name, arch), **CLOSED[name])


@pytest.mark.parametrize("name", sorted(OTHER))
def test_another_machine_s_parameter_is_found(name: str) -> None:
    measured = PARAMETERS[name](Modelled("gfx950", {name: OTHER[name]}))
    assert measured == pytest.approx(OTHER[name], **CLOSED.get(name, ONE_SLOT))
