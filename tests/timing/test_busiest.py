"""What takes most of a launch's time, by hand-made figures of the model."""

from __future__ import annotations

from typing import Any

import pytest

from hk_backend import _emulator
from hk_backend.timing.busiest import IDLE, LAUNCH, Busiest, busiest
from hk_backend.timing.model import Modelled

UNITS = {"matrix": 0.5, "vector": 0.45, "matrix issue": 0.02, "lds": 0.4, "hbm": 0.1}


def modelled(units: dict[str, float], **changes: float) -> Modelled:
    """100 us at 2 GHz, with nothing before them."""
    values: dict[str, Any] = {
        "microseconds": 100.0, "stream_microseconds": 100.0, "clock_ghz": 2.0, "clocks": 2e5,
        "flops": 1.0, "bytes": 1.0, "resident": 1, "busy_share": 1.0, "active": 256,
        "parameters": _emulator.TimingParameters("gfx950"), **changes,
    }  # fmt: skip
    return Modelled(arch="gfx950", unit_share=units, lengths={}, times=[], **values)


def test_the_busiest_unit() -> None:
    assert busiest(modelled(UNITS)) == Busiest("matrix", 0.5)
    assert busiest(modelled({**UNITS, "lds": 0.9})) == Busiest("lds", 0.9)


def test_issuing_matrix_instructions_takes_the_vector_port() -> None:
    found = busiest(modelled({**UNITS, "matrix issue": 0.1}))
    assert found.name == "vector"
    assert found.share == pytest.approx(0.55)


def test_units_without_work_and_the_launch_itself() -> None:
    assert busiest(modelled(UNITS, busy_share=0.25)) == Busiest(IDLE, 0.75)
    assert busiest(modelled(UNITS, clocks=1e5, busy_share=0.4)) == Busiest(LAUNCH, 0.5)
    half = busiest(modelled({**UNITS, "matrix": 0.9}, clocks=1.2e5))
    assert half.name == "matrix"
    assert half.share == pytest.approx(0.9 * 0.6)
