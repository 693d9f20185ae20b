"""Who computes a kind of layer: measured with stand-ins, kept, or given."""

from __future__ import annotations

import logging

import pytest

from hk_backend.engine.evidence import Contest, Decision, Kind, NoContest, decide, deciding
from hk_backend.engine.evidence.measuring import MODEL_SECONDS
from tests.engine.evidence.conftest import restart
from tests.engine.evidence.standins import (
    KIND,
    ROWS,
    Cost,
    FakeClock,
    StandIn,
    always,
    noisy,
)

MS, SHORT = 1e-3, 1e-4
CASES: dict[str, tuple[Cost, Cost, bool]] = {
    "faster": (always(SHORT), always(2 * SHORT), True),
    "slower": (always(2 * SHORT), always(SHORT), False),
    "equal": (always(SHORT), always(SHORT), False),
    "faster by too little": (always(SHORT), always(1.02 * SHORT), False),
    "slower with many rows": (always(SHORT, 0.1 * SHORT), always(2 * SHORT, 0.09 * SHORT), False),
    "as fast with one row, faster with many": (
        always(SHORT, 0.1 * SHORT),
        always(SHORT, 0.2 * SHORT),
        True,
    ),
    "noise around equal": (noisy(SHORT, (0.8, 1.2, 1.0)), noisy(SHORT, (1.0, 1.2, 0.8)), False),
    "noise around faster": (noisy(SHORT, (0.8, 1.0, 1.2)), noisy(1.5 * SHORT, (1.2, 1, 0.8)), True),
}


@pytest.mark.parametrize(("ours", "theirs", "by_hk"), CASES.values(), ids=CASES.keys())
def test_the_times_decide_and_a_repeat_decides_alike(
    ours: Cost, theirs: Cost, by_hk: bool, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    contest = StandIn(clock, ours, theirs)
    decision = decide(KIND, contest)
    assert decision.verdict.ok is by_hk
    assert tuple(each.rows for each in decision.times) == ROWS
    assert decide(KIND, contest) == decision
    restart(monkeypatch)
    assert decide(KIND, contest) == decision
    assert contest.made == 1


def test_a_reason_names_both_times_and_the_rows(clock: FakeClock) -> None:
    decision = decide(KIND, StandIn(clock, always(2 * MS), always(MS)))
    assert decision.verdict.why == (
        "faster without HK: linear bf16 64x64 from bfloat16: 1 row: HK 2 ms, the engine 1 ms"
    )


def test_a_failing_side_leaves_the_layer_to_the_engine(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(rows: int) -> None:
        raise RuntimeError("no kernel")

    decision = decide(KIND, lambda: Contest(ROWS, fails, fails))
    assert "RuntimeError: no kernel" in decision.verdict.why
    assert decision.why_not(1)
    assert len(caplog.records) == 1


def test_what_the_engine_cannot_compute_is_served() -> None:
    def none() -> Contest:
        raise NoContest("rotated weights")

    assert decide(KIND, none).verdict
    assert "rotated weights" in decide(KIND, none).note


@pytest.mark.parametrize(
    "environment", [{"HK_EVIDENCE": "ignore"}, {"HK_DEVICE": "cpu"}, {"HK_DEVICE": "cpu:avx2"}]
)
def test_what_the_user_decides_is_not_measured(
    environment: dict[str, str], clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    contest = StandIn(clock, always(2 * MS), always(MS))
    assert decide(KIND, contest).verdict
    assert not contest.made


def test_each_call_makes_one_broadcast_and_rank_0_decides(clock: FakeClock) -> None:
    class Ranks:
        def __init__(self, rank: int) -> None:
            self.rank, self.sent = rank, []

        def broadcast(self, value: Decision) -> Decision:
            self.sent.append(value)
            return self.sent[0] if self.rank == 0 else answer

    slower = StandIn(clock, always(2 * MS), always(MS))
    zero = Ranks(0)
    answer = decide(KIND, slower, zero)
    faster = StandIn(clock, always(MS), always(2 * MS))
    one = Ranks(1)
    assert decide(KIND, faster, one) == answer
    assert not faster.made
    decide(KIND, slower, zero)
    decide(KIND, faster, one)
    assert (len(zero.sent), len(one.sent)) == (2, 2)


def test_a_model_takes_no_more_than_its_seconds(clock: FakeClock) -> None:
    """The kinds of a Llama, all large: rows that are too expensive are not measured."""
    for n in range(6):
        kind = Kind("linear", "vLLM", "cpu:avx2", f"bf16 {n}x64", "theirs")
        decision = decide(kind, StandIn(clock, always(2 * MS, MS), always(3 * MS, MS)))
        assert decision.times
        assert decision.unmeasured
    assert MODEL_SECONDS / 2 < clock.seconds < MODEL_SECONDS


def test_the_smallest_number_of_rows_is_measured_even_without_time(clock: FakeClock) -> None:
    clock.seconds = 0.0
    deciding.process.loading.budget.left = 0.0
    decision = decide(KIND, StandIn(clock, always(MS), always(2 * MS)))
    assert [each.rows for each in decision.times] == [1]
    assert decision.unmeasured == ROWS[1:]
    assert decision.verdict


def test_one_line_says_what_was_measured(
    clock: FakeClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logging.getLogger("vllm.hk_vllm.linear")
    caplog.set_level(logging.INFO, log.name)
    decide(KIND, StandIn(clock, always(MS), always(2 * MS)))
    deciding.say_measured("vLLM", log)
    deciding.say_measured("vLLM", log)
    assert caplog.messages == [
        "hk_backend: measured 1 kind of linear layers in 0.2 s: 1 by HK, 0 by vLLM "
        "(hk-backend status shows both times)"
    ]
    restart(monkeypatch)
    caplog.clear()
    decide(KIND, StandIn(clock, always(MS), always(2 * MS)))
    deciding.say_measured("vLLM", log)
    assert caplog.messages == [
        "hk_backend: 1 kind of linear layers, measured before: 1 by HK, 0 by vLLM "
        "(hk-backend status shows both times)"
    ]
