"""The rule, by hand-made times."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hk_backend.engine.evidence import Decision
from hk_backend.terms.measurements import Times
from tests.engine.evidence.standins import KIND

ATTENTION = replace(KIND, operator="attention")


def times(**ratios: float) -> tuple[Times, ...]:
    """The engine's time over HK's, by "m" and the number of rows."""
    found = ((int(name[1:]), ratio) for name, ratio in ratios.items())
    return tuple(Times(rows=rows, ours=100.0, theirs=100.0 * ratio) for rows, ratio in found)


def test_the_reason_is_the_worst_number_of_rows() -> None:
    decision = Decision(KIND, times(m1=2.0, m8=0.5, m64=0.8))
    assert decision.verdict.why.startswith("faster without HK: linear bf16 64x64")
    assert decision.verdict.why.endswith(": 8 rows: HK 100 us, the engine 50 us")


@pytest.mark.parametrize(
    ("rows", "by_hk"),
    [
        (1, False),
        (16, False),
        (17, False),
        (64, True),
        (100, True),
        (128, True),
        (129, False),
        (512, False),
        (513, False),
        (9999, False),
    ],
)
def test_a_step_is_decided_by_the_nearest_measured_numbers(rows: int, by_hk: bool) -> None:
    decision = Decision(ATTENTION, times(m16=0.5, m64=1.5, m128=1.2, m512=0.9))
    assert bool(decision.why_not(rows)) is not by_hk
    assert decision.by_hk
    assert not decision.verdict


def test_attention_that_is_nowhere_faster_stays_with_the_engine() -> None:
    decision = Decision(ATTENTION, times(m16=0.5, m64=0.8))
    assert not decision.somewhere
    assert not decision.by_hk
    assert decision.somewhere.why == decision.verdict.why
