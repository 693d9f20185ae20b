"""`make demo`: when it fails, what it writes, and how it times."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from rich.console import Console

from bench_serving import demo
from bench_serving.counters import RouteTotals
from bench_serving.demo_results import Results
from bench_serving.requests import Answer
from hk_backend.engine.evidence import SLOWER
from hk_backend.routing.routes import Tally


class FakeClient:
    """Answers with fixed tokens; remembers what it was timed with."""

    def __init__(self, log: list[tuple[str, tuple[int, ...]]], name: str, shift: float = 0.0):
        self.log, self.name, self.shift = log, name, shift
        self.answer = (7, 8)

    def chat(self, question: str, max_tokens: int) -> Answer:
        return Answer(question, "text", (1, 2), self.answer)

    def logprobs(self, tokens: tuple[int, ...]) -> list[float]:
        return [-1.0 + self.shift for _ in tokens[1:]]

    def time_to_first_token(self, tokens: list[int]) -> float:
        self.log.append((self.name, tuple(tokens)))
        return 0.5


def clients(**changes: Any) -> tuple[dict[Any, Any], list[tuple[str, tuple[int, ...]]]]:
    log: list[tuple[str, tuple[int, ...]]] = []
    return {"stock": FakeClient(log, "stock"), "hk": FakeClient(log, "hk", **changes)}, log


def good(engine: str = "vllm") -> Results:
    found = Results(
        "model", {engine: "0.32.0"}, "cpu:avx2", tokens_equal=True, max_logprob_diff=1e-5
    )
    found.enter_totals({"attention": RouteTotals(served=Tally(30, 900))})
    return found


def test_routing_is_counted_per_route_and_per_reason() -> None:
    """A reason that both routes give is summed."""
    found = Results("model", {"vllm": None}, "cpu")
    attention = RouteTotals(served=Tally(30, 900), fallbacks={"graph capture": Tally(2, 100)})
    linear = RouteTotals(fallbacks={"graph capture": Tally(2, 30)})
    found.enter_totals({"attention": attention})
    assert (found.calls, found.tokens) == ({"attention": 30}, {"attention": 900})
    assert found.fallbacks == {"graph capture": {"calls": 2, "tokens": 100}}
    assert found.routes["attention"]["on"] is True
    assert found.failures()[0] == "only 90.0% of attention's prefill tokens were HK's"
    both = Results("model", {"vllm": None}, "cpu")
    both.enter_totals({"attention": attention, "linear": linear})
    assert both.fallbacks == {"graph capture": {"calls": 4, "tokens": 130}}


@pytest.mark.parametrize("served", [0, 900])
def test_what_the_engine_computes_faster_is_no_failure(served: int) -> None:
    found = good()
    assert found.failures() == []
    fallbacks = {f"{SLOWER}: linear bf16 64x64: 1 row: HK 2 us, the engine 1 us": Tally(2, 100)}
    totals = RouteTotals(served=Tally(bool(served), served), fallbacks=fallbacks)
    found.enter_totals({"attention": totals})
    assert found.routes["attention"]["routed_share"] == served / (served + 100)
    assert found.failures() == []


def test_hk_that_computed_nothing_is_a_failure() -> None:
    found = good()
    found.enter_totals({"attention": RouteTotals(fallbacks={"broken": Tally(9, 9)})})
    assert found.routes["attention"]["on"] is False
    assert found.routes["attention"]["why"] == "broken"
    assert any("only 0.0%" in failure for failure in found.failures())
    found.routes = {}  # a server without counters
    assert found.failures() == ["HK served nothing: the server publishes no routing counters"]


@pytest.mark.parametrize(
    ("answer", "shift", "failures"),
    [
        ((7, 8), 0.0, []),
        ((7, 9), 0.0, ["float32 greedy tokens differ between stock and HK"]),
        ((7, 8), 0.002, ["log-probabilities differ by"]),
        ((7, 8), float("nan"), ["log-probabilities differ by"]),
    ],
)
def test_answers_are_compared(answer: tuple[int, ...], shift: float, failures: list[str]) -> None:
    found = good()
    both, _ = clients(shift=shift)
    both["hk"].answer = answer
    demo._compare_answers(both, found, Console(quiet=True))
    assert len(found.failures()) == len(failures)
    assert all(map(str.startswith, found.failures(), failures))
    assert found.tokens_equal == (answer == (7, 8))
    assert [set(each) for each in found.answers] == [{"question", "answer"}] * 4
    json.dumps(asdict(found), allow_nan=False)


def test_prompts_are_the_same_for_both_and_never_the_same_twice() -> None:
    both, log = clients()
    waited: list[int] = []  # prompts timed before each wait

    def settle() -> bool:
        waited.append(len(log))
        return True

    samples, disturbed = demo._time_prefill(
        both, settle, 32, rounds=4, name="fp32", console=Console(quiet=True)
    )
    assert (waited, disturbed) == (list(range(10)), 0)
    assert {backend: len(seconds) for backend, seconds in samples.items()} == {"stock": 4, "hk": 4}
    rounds = [log[i : i + 2] for i in range(0, len(log), 2)]
    assert len(rounds) == 5  # the first warms up
    assert all(first[1] == second[1] for first, second in rounds)
    assert len({first[1] for first, _ in rounds}) == 5
    order = [first[0] for first, _ in rounds[1:]]
    assert order == ["stock", "hk", "stock", "hk"]
