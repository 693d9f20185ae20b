"""Parameters of the timing model, derived from measured rows, and the file that holds them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hk_backend.lab.timing.measured import PARAMETERS, Measured, MeasuredError, read
from hk_backend.lab.timing.microbenchmarks import MicrobenchmarkResult

LOOP = 24.0 / 64  # clocks: two scalar instructions and a jump, of each of 64 repeats
CHAIN = 24.0 / 16 + 4  # ... of 16, and the issue of a wait


def found(
    *clocks: float, waves: tuple[int, ...] = (0,), us: float = 1.0, ghz: float = 2.4,
    alone: float = 0.0, gap: float = 0.0, call: float = 0.0, workgroups: int = 1,
) -> MicrobenchmarkResult:  # fmt: skip
    each = clocks if len(clocks) == len(waves) else clocks * len(waves)
    by_wave = dict(zip(waves, each, strict=True))
    return MicrobenchmarkResult(by_wave, us, ghz, alone, gap, call, workgroups)


EIGHT = tuple(range(8))
ROWS = {
    "s_nop_0": found(4 + LOOP),
    "s_nop_1": found(8 + LOOP),
    "branch": found(16 + LOOP),
    "barrier_2": found(20 + LOOP, waves=(0, 1)),
    "clock": found(64, ghz=2.4),
    "clock_fma_f32": found(4, ghz=2.16),
    "clock_bf16_32x32x16": found(32, ghz=1.8),
    "launch": found(0, gap=4.5, call=9.0),
    # 2,400 clocks from one to the next, of which the wave sees 700 and its arguments take 192
    "workgroups_of_8": found(0, waves=EIGHT, us=1.0, alone=700),
    "scalar_latency": found(192 + CHAIN),
    "fma_f32_independent": found(4 + LOOP),
    "fma_f64_independent": found(8 + LOOP),
    "swap_b32_independent": found(12 + LOOP),
    "exp_f32_independent": found(16 + LOOP),
    "mfma_bf16_32x32x16_independent": found(32),
    "mfma_then_vector": found(32 + 20 + CHAIN),
    # 64 matrix instructions of a step take 4 clocks each from its 256 vector ones
    "beside_both": found(16, 20, waves=(0, 4)),
    "beside_vector": found(16, waves=(4,)),
    # the last wave decides
    "lds_read_b128": found(*[20] * 7, 8 * 1024 / 256, waves=EIGHT),
    "lds_read_b64": found(8 * 512 / 128, waves=EIGHT),
    "lds_read_b32": found(8 * 256 / 64, waves=EIGHT),
    "lds_read_b64_transposed": found(8 * 512 / 100, waves=EIGHT),
    "lds_write_b128": found(8 * 1024 / 127, waves=EIGHT),
    "lds_latency": found(100 + CHAIN),
    "l1_read": found(8 * 1024 / 64, waves=EIGHT),
    "l1_latency": found(120 + CHAIN),
    "l2_read": found(8 * 1024 / 60, waves=EIGHT),
    "l2_latency": found(500 + CHAIN),
    "fabric_read": found(8 * 1024 / 26, waves=EIGHT),
    # 256 workgroups of 8 waves stream 16 KiB each in a step: 32 MiB
    "infinity_cache_read": found(1, waves=EIGHT, us=2**25 / 10e6, workgroups=256),
    "infinity_cache_latency": found(800 + CHAIN),
    "hbm_read": found(1, waves=EIGHT, us=2**25 / 6e6, workgroups=256),
    "hbm_write": found(1, waves=EIGHT, us=2**25 / 3e6, workgroups=256),
    "hbm_latency": found(1000 + CHAIN),
}
EXPECTED = {
    "clock": 2.4,
    "clock_idle": 0.9,
    "clock_loaded": 0.75,
    "launch": 9.0,
    "dependent_gap": 4.5,
    "workgroup_start": 2400 - 700 - 192,
    "issue": 4,
    "branch_taken": 16,
    "barrier_release": 20,
    "vector": 4,
    "vector_wide": 8,
    "vector_swap": 12,
    "transcendental": 16,
    "matrix": 1,
    "matrix_issue": 4,
    "matrix_forward": 20,
    "lds_read_b128": 256,
    "lds_read_b64": 128,
    "lds_read_b32": 64,
    "lds_read_transposed": 100,
    "lds_write": 127,
    "lds_latency": 100,
    "vector_memory": 64,
    "l1_latency": 120,
    "l2": 60,
    "l2_latency": 500,
    "compute_unit_fabric": 26,
    "infinity_cache": 10,
    "infinity_cache_latency": 800,
    "hbm": 6,
    "hbm_write_cost": 2,
    "hbm_latency": 1000,
    "scalar_latency": 192,
}


def measured(rows: dict[str, MicrobenchmarkResult] = ROWS, **changes: Any) -> Measured:
    return Measured(
        **{"arch": "gfx950", "device": "a GPU", "emulated": False, **changes}, rows=rows
    )


def test_every_parameter_follows() -> None:
    assert set(EXPECTED) == set(PARAMETERS)
    assert measured().parameters == pytest.approx(EXPECTED)


def test_a_longer_matrix_wave_delays_only_while_the_vector_wave_lasts() -> None:
    """The matrix wave takes longer: half of the step's 64 instructions are issued when the vector
    wave ends."""
    rows = ROWS | {"beside_both": found(36, 18, waves=(0, 4))}
    assert measured(rows).parameters["matrix_issue"] == pytest.approx(4)


def test_what_rests_on_a_row_that_is_not_there_is_left_out() -> None:
    rows = {name: row for name, row in ROWS.items() if name != "lds_read_b64_transposed"}
    assert set(PARAMETERS) - set(measured(rows).parameters) == {"lds_read_transposed"}


def test_what_is_not_positive_was_not_measured() -> None:
    rows = ROWS | {"launch": found(0, gap=-3.0, call=0.0)}
    assert set(PARAMETERS) - set(measured(rows).parameters) == {"launch", "dependent_gap"}


def test_the_file_gives_them_back(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    measured().save(path)
    assert read(path, "gfx950") == pytest.approx(EXPECTED)
    data = json.loads(path.read_text())
    assert {row["certainty"] for row in data["parameters"].values()} == {"measured"}
    assert data["rows"]["clock"]["gigahertz"] == 2.4
    assert data["device"] == "a GPU"


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    measured().save(path)
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(arch="gfx942"), "was measured on gfx942, not on gfx950"),
        (lambda data: data.update(emulated=True), "is of an emulated device"),
        (lambda data: data.pop("parameters"), "is not a file of .*: KeyError: 'parameters'"),
        (lambda data: data.update(parameters=[]), "is not a file of .*: AttributeError"),
        (lambda data: data["parameters"].update(hbm={"value": "fast"}), "ValueError: could not"),
    ],
)
def test_other_files_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    path = tmp_path / "measured.json"
    edit(path, change)
    with pytest.raises(MeasuredError, match=message):
        read(path, "gfx950")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MeasuredError, match=r"none\.json: No such file"):
        read(tmp_path / "none.json", "gfx950")
