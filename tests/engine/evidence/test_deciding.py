"""The choice between HK and the engine for a kind of layer: measured with stand-ins, kept, or
given. The rule itself is tested with hand-made times."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest
import torch

from hk_backend import machine
from hk_backend.config import ConfigError, get_config
from hk_backend.engine.evidence import Call, Contest, Decision, Kind, NoContest, decide, deciding
from hk_backend.engine.evidence.deciding import say_measured
from hk_backend.engine.evidence.measuring import SECONDS, Budget
from hk_backend.engine.evidence.stopwatch import HostStopwatch
from hk_backend.terms.measurements import Times

KIND = Kind("linear", "vLLM", "cpu:avx2", "bf16 64x64 from bfloat16", "UnquantizedLinearMethod")
ROWS = (1, 8, 64, 512)


@dataclass
class FakeClock:
    """A clock that only calls of a contest advance."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


Cost = Callable[[int], Iterator[float]]
"""The seconds of one call after another, for a number of rows."""


def always(seconds: float, by_row: float = 0.0) -> Cost:
    """Equal times: every call takes `seconds`."""
    return lambda rows: cycle([seconds + by_row * rows])


def noisy(seconds: float, factors: Sequence[float]) -> Cost:
    """Noisy times: each call takes the time multiplied by the next of the factors."""
    return lambda rows: cycle([seconds * factor for factor in factors])


@dataclass
class StandIn:
    """A contest whose calls advance `clock`."""

    clock: FakeClock
    ours: Cost
    theirs: Cost
    made: int = 0

    def __call__(self) -> Contest:
        self.made += 1
        return Contest(ROWS, self._side(self.ours), self._side(self.theirs))

    def _side(self, cost: Cost) -> Callable[[int], Call]:
        def make(rows: int) -> Call:
            times = cost(rows)

            def call() -> None:
                self.clock.seconds += next(times)

            return call

        return make


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of measurements."""
    monkeypatch.setenv("HK_CACHE_DIR", str(tmp_path / "kept"))
    restart(monkeypatch)
    return tmp_path / "kept"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock that times everything."""
    fake = FakeClock()
    monkeypatch.setattr(deciding, "stopwatch_for", lambda *kind: HostStopwatch(fake, running=fake))
    return fake


def restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets what this process has decided, as a second start does."""
    monkeypatch.setattr(deciding, "process", deciding.Process())
    get_config.cache_clear()


MS, SHORT = 1e-3, 1e-4
CASES: dict[str, tuple[Cost, Cost, bool]] = {
    "faster": (always(SHORT), always(2 * SHORT), True),
    "faster by too little": (always(SHORT), always(1.02 * SHORT), False),
    "slower with many rows": (always(SHORT, 0.1 * SHORT), always(2 * SHORT, 0.09 * SHORT), False),
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


def test_a_failing_side_leaves_the_layer_to_the_engine(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(rows: int) -> None:
        raise RuntimeError("no kernel")

    decision = decide(KIND, lambda: Contest(ROWS, fails, fails))
    assert "RuntimeError: no kernel" in decision.verdict.why
    assert decision.why_not(1)
    assert len(caplog.records) == 1


def test_a_stopwatch_without_memory_leaves_the_layer_to_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stopwatch allocates on the GPU; an error of it must not end the load."""

    def no_memory(*kind: str) -> HostStopwatch:
        raise torch.OutOfMemoryError("512 MiB")

    monkeypatch.setattr(deciding, "stopwatch_for", no_memory)
    contest = StandIn(FakeClock(), always(SHORT), always(SHORT))
    assert "not measured: OutOfMemoryError: 512 MiB" in decide(KIND, contest).verdict.why


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


def test_kinds_that_are_left_get_equal_parts_and_further_ones_half_of_the_rest() -> None:
    budget = Budget(left=12.0, kinds=3)
    shares = []
    for _ in range(5):
        shares.append(budget.share(spent=0.0))
        budget.spend(shares[-1])
    assert shares == [4.0, 4.0, 2.0, 1.0, 0.5]


@pytest.mark.parametrize("making", [0.0, 0.7])
def test_a_model_takes_no_more_than_its_seconds(making: float, clock: FakeClock) -> None:
    """All kinds of a Llama's layers are large, and rows that are too expensive are not measured.
    Contests take time, too, since a layer's weight is packed for each."""

    def made(contest: StandIn) -> Contest:
        clock.seconds += making
        return contest()

    for n in range(6):
        contest = StandIn(clock, always(2 * MS, MS), always(3 * MS, MS))
        decision = decide(replace(KIND, layer=str(n)), partial(made, contest))
        assert decision.times
        assert decision.unmeasured
    assert SECONDS / 2 < clock.seconds < SECONDS + making / 7


def test_the_smallest_number_of_rows_is_measured_even_without_time(clock: FakeClock) -> None:
    clock.seconds = 0.0
    deciding.process.loading.budget.left = 0.0
    decision = decide(KIND, StandIn(clock, always(MS), always(2 * MS)))
    assert [each.rows for each in decision.times] == [1]
    assert decision.unmeasured == ROWS[1:]
    assert decision.verdict


@pytest.mark.parametrize("changed", ["vLLM", "torch", "threads"])
def test_another_version_or_number_of_threads_is_measured_again(
    changed: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not decide(KIND, StandIn(clock, always(2 * MS), always(MS))).verdict
    if changed != "threads":
        restart(monkeypatch)
    if changed == "vLLM":
        monkeypatch.setitem(machine.ENGINES, "vLLM", ("pytest",))
    elif changed == "torch":
        monkeypatch.setattr("torch.__version__", "9.9")
    else:
        monkeypatch.setattr("torch.get_num_threads", lambda: 77)
    faster = StandIn(clock, always(MS), always(2 * MS))
    assert decide(KIND, faster).verdict
    assert faster.made == 1


def test_a_damaged_file_is_measured_again_and_replaced(
    clock: FakeClock, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slower = StandIn(clock, always(2 * MS), always(MS))
    decide(KIND, slower)
    (path,) = kept.glob("*.json")
    path.write_text(path.read_text()[:100])
    for made in (2, 2):  # measured once more, and kept again
        restart(monkeypatch)
        assert not decide(KIND, slower).verdict
        assert slower.made == made


def test_a_file_that_the_user_names_answers(
    clock: FakeClock, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A named file answers even if another machine wrote it; kinds that it lacks are measured."""
    decide(KIND, StandIn(clock, always(2 * MS), always(MS)))
    (path,) = kept.glob("*.json")
    named = tmp_path / "named.json"
    named.write_text(path.read_text().replace('"threads": ', '"threads": 9'))
    path.unlink()
    monkeypatch.setenv("HK_EVIDENCE", str(named))
    restart(monkeypatch)
    faster = StandIn(clock, always(MS), always(2 * MS))
    assert not decide(KIND, faster).verdict
    assert not faster.made
    assert decide(replace(KIND, layer="another"), faster).verdict
    assert faster.made == 1


@pytest.mark.parametrize("text", [None, "", "[]", '{"format": 1}', "use"])
def test_a_file_that_holds_no_measurements_is_an_error(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "named.json"
    if text is not None:
        named.write_text(text)
    monkeypatch.setenv("HK_EVIDENCE", str(named))
    restart(monkeypatch)
    with pytest.raises(ConfigError) as error:
        get_config()
    assert str(error.value).startswith(
        f"HK_EVIDENCE={str(named)!r} is not valid: expected measure, ignore, or a file that "
        f"hk-backend tune has written: {named}: "
    )
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("reason", ["requests", "capture"])
def test_nothing_is_measured_while_requests_run_or_a_graph_is_captured(
    reason: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason == "requests":
        deciding.requests_run()
    else:
        monkeypatch.setattr(deciding, "_is_capturing", lambda: True)
    contest = StandIn(clock, always(MS), always(2 * MS))
    assert "not measured" in decide(KIND, contest).verdict.why
    assert not contest.made


def test_a_contest_leaves_the_engines_random_numbers_alone(clock: FakeClock) -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)

    def contest() -> Contest:
        torch.rand(100)
        return StandIn(clock, always(MS), always(2 * MS))()

    decide(KIND, contest)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("rows", [(), (8, 1), (1, 1), (0, 1)])
def test_rows_of_a_contest_ascend(rows: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="rows = "):
        Contest(rows, lambda rows: lambda: None, lambda rows: lambda: None)


def test_what_a_busy_machine_measured_is_not_kept(
    kept: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A busy machine's measurement decides for this process alone: the next start measures
    again."""
    clock = FakeClock()
    watch = HostStopwatch(clock, running=lambda: 0.0)
    monkeypatch.setattr(deciding, "stopwatch_for", lambda *kind: watch)
    contest = StandIn(clock, ours=always(0.001), theirs=always(0.002))
    assert decide(KIND, contest).verdict.ok
    with caplog.at_level(logging.INFO):
        say_measured("vLLM", logging.getLogger("said"))
    assert "1 of them not kept because this machine is busy" in caplog.text
    restart(monkeypatch)
    decide(KIND, contest)
    assert contest.made == 2


ATTENTION = replace(KIND, operator="attention")


def times(**ratios: float) -> tuple[Times, ...]:
    """Ratios of the engine's time to HK's, by "m" and the number of rows."""
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
