"""Who computes a layer on an emulated GPU, where both times are modelled or one is unknown."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from hk_backend.engine.evidence import (
    Call,
    Contest,
    Decision,
    Kind,
    NoContest,
    decide,
    deciding,
    modelling,
)
from hk_backend.terms.measurements import Times

KIND = Kind("attention", "vLLM", "emulated:gfx950", "bfloat16, 8/2 heads of 128", "TRITON_ATTN")
ROWS = (32, 128)
THEIRS = {32: 12.3456, 128: 20.0}
"""Microseconds of the engine's kernels, by rows."""


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that knows nothing and, afterwards, has no clock."""
    monkeypatch.setattr(deciding, "process", deciding.Process())
    yield
    modelling.forget()


def unused(rows: int) -> Call:
    raise AssertionError("HK's kernels were run, though their time is planned")


def contest(planned: Callable[[int], float] | None = lambda rows: rows / 10) -> Contest:
    def theirs(rows: int) -> Call:
        return lambda: rows

    return Contest(ROWS, unused, theirs, planned)


def clock(call: Call) -> float:
    rows = call()
    assert isinstance(rows, int)
    return THEIRS[rows]


def test_a_clock_decides(caplog: pytest.LogCaptureFixture) -> None:
    modelling.use(clock, KIND.device)
    with caplog.at_level(logging.INFO):
        found = decide(KIND, contest)
    times = (Times(rows=32, ours=3.2, theirs=12.35), Times(rows=128, ours=12.8, theirs=20.0))
    assert found == Decision(KIND, times, note="modelled")
    assert found.verdict
    assert "modelled for 32 rows: HK 3.2 us, TRITON_ATTN 12.3 us" in caplog.text


def test_decode_is_decided_alike() -> None:
    modelling.use(clock, KIND.device)
    short, long = (replace(KIND, operator="decode", layer=f"{keys} keys") for keys in (512, 4096))
    assert decide(short, contest).note == "modelled"
    left = decide(long, lambda: contest(lambda rows: 15.0)).why_not(32)
    assert left == (
        "faster without HK: decode 4096 keys: 32 rows: HK 15 us, the engine 12.3 us (modelled)"
    )


def test_the_slower_side_leaves_the_layer() -> None:
    modelling.use(clock, KIND.device)
    found = decide(KIND, lambda: contest(lambda rows: 15.0))
    assert found.why_not(128) == ""
    assert "HK 15 us, the engine 12.3 us (modelled)" in found.why_not(32)
    assert not replace(found, kind=replace(KIND, operator="linear")).by_hk


def test_the_answer_is_kept() -> None:
    modelling.use(clock, KIND.device)
    first = decide(KIND, contest)
    assert decide(KIND, lambda: pytest.fail("a second contest")) is first


@pytest.mark.parametrize("planned", [lambda rows: 1.0, None], ids=["no kernel", "no plan"])
def test_an_unknown_time_decides_nothing(planned: Callable[[int], float] | None) -> None:
    """A call that launches none of the engine's GPU kernels takes no modelled time."""
    modelling.use(clock if planned is None else lambda call: 0.0, KIND.device)
    found = decide(KIND, lambda: contest(planned))
    assert found == Decision(KIND, note=deciding.MODELLED)
    assert found.by_hk


@pytest.mark.parametrize(
    "kind",
    [
        replace(KIND, device="emulated:gfx942"),
        replace(KIND, operator="linear"),
    ],
    ids=["another GPU's clock", "a linear layer"],
)
def test_no_contest_is_made_without_a_clock(kind: Kind) -> None:
    modelling.use(clock, KIND.device)
    found = decide(kind, lambda: pytest.fail("a contest"))
    assert found == Decision(kind, note=deciding.MODELLED)


def test_no_contest_is_made_once_requests_run() -> None:
    modelling.use(clock, KIND.device)
    deciding.requests_run()
    found = decide(KIND, lambda: pytest.fail("a contest"))
    assert found == Decision(KIND, note=deciding.MODELLED)


def test_long_prompts_are_not_modelled() -> None:
    modelling.use(clock, KIND.device)
    many = replace(contest(), rows=(*ROWS, 2048))
    found = decide(KIND, lambda: many)
    assert [each.rows for each in found.times] == [*ROWS]
    assert found.unmeasured == (2048,)


def test_an_error_leaves_the_layer() -> None:
    modelling.use(lambda call: 1 / 0, KIND.device)
    found = decide(KIND, contest)
    assert decide(KIND, lambda: pytest.fail("a second contest")) is found
    assert not found.by_hk
    assert "not measured: ZeroDivisionError" in found.verdict.why


def test_a_layer_that_the_engine_cannot_compute_is_served() -> None:
    def none() -> Contest:
        raise NoContest("no kernel")

    modelling.use(clock, KIND.device)
    found = decide(KIND, none)
    assert decide(KIND, lambda: pytest.fail("a second contest")) is found
    assert found.by_hk
    assert found.note == "vLLM cannot compute it: no kernel"
