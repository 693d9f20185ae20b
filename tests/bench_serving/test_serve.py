"""`bench_serving serve` and `kernels`: the order of runs, failed runs, and kept results."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench_serving import counters
from bench_serving.__main__ import app
from bench_serving.candidates import Candidate
from bench_serving.counters import RouteTotals
from bench_serving.engines import Vllm
from bench_serving.kernels import OPERATORS, measure
from bench_serving.points import Run, summarize
from bench_serving.serve import fail_other_prompts, run_client
from bench_serving.server import Backend, Server, differences
from hk_backend.engine.evidence import SLOWER
from hk_backend.lab.bench import settings
from hk_backend.lab.bench.attention.measure import AttentionCase
from hk_backend.lab.bench.attention.sweep import AttentionSweep
from hk_backend.lab.bench.linear.measure import LinearCase
from hk_backend.lab.bench.linear.sweep import LinearSweep
from hk_backend.lab.commands.benchmark import TimedSweep
from hk_backend.routing.routes import Tally
from tests.bench_serving.conftest import plan

ALL = {"completed": 4, "total_input_tokens": 4 * 64, "total_output_tokens": 4 * 4}
"""The client's result if all prompts of `plan` were answered."""
LEFT = f"{SLOWER}: float32 (vs float32, 3.00 GHz): prompts below 300 tokens"
"""A fallback's reason: the engine is faster at short prompts."""
GOOD = {"total_token_throughput": 100.0, "median_ttft_ms": 20.0, "median_tpot_ms": 5.0}


def run(backend: Backend, turn: int = 0, error: str = "", **metrics: float) -> Run:
    measured = {} if error else {**GOOD, **metrics}
    return Run(turn, 64, 1, backend, measured, error=error)


class Client:
    """A stand-in for vLLM's client process: it writes `result` and ends with `code`."""

    def __init__(self, result: dict[str, Any] | None, code: int = 0, stderr: str = "") -> None:
        self.result, self.code, self.stderr = result, code, stderr
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        if self.result is not None:
            folder = Path(command[command.index("--result-dir") + 1])
            name = command[command.index("--result-filename") + 1]
            (folder / name).write_text(json.dumps(self.result))
        return subprocess.CompletedProcess(command, self.code, "", self.stderr)


@pytest.fixture
def measure_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Client, Backend, int], Run]:
    """Runs one client against a server that counts `served` tokens and `fallbacks` meanwhile."""

    def measure(
        client: Client, backend: Backend = "hk", served: int = 1, fallbacks: Sequence[str] = ()
    ) -> Run:
        left = {why: Tally(1, 50) for why in fallbacks}
        readings = iter([{}, {"attention": RouteTotals(Tally(1, served), left)}])
        monkeypatch.setattr(subprocess, "run", client)
        monkeypatch.setattr(Server, "check_alive", lambda self: None)
        monkeypatch.setattr(counters, "read", lambda url: next(readings))
        server = Server(Vllm(), tmp_path, backend, "float32", tmp_path / "log.txt")
        return run_client(server, plan(tmp_path), Run(0, 64, 1, backend), tmp_path)

    return measure


def test_backends_alternate_and_every_other_round_runs_backwards(tmp_path: Path) -> None:
    order = [(turn, c, found.name) for turn, _, c, found in plan(tmp_path).points()]
    assert order == [
        (0, 1, "stock"), (0, 1, "hk"), (0, 2, "stock"), (0, 2, "hk"),
        (1, 1, "hk"), (1, 1, "stock"), (1, 2, "hk"), (1, 2, "stock"),
    ]  # fmt: skip


def test_a_candidate_s_name_sets_its_dtype_and_quantization(tmp_path: Path) -> None:
    names = ("stock", "hk:bfloat16", "hk:auto:hk_fp8")
    mixed = plan(tmp_path, *names)
    (tmp_path / "log").touch()
    stock, bfloat16, fp8 = (
        c.server(Vllm(), tmp_path, mixed.dtype, tmp_path / "log") for c in mixed.candidates
    )
    assert [s.dtype for s in (stock, bfloat16, fp8)] == ["float32", "bfloat16", "auto"]
    assert [s.backend for s in (stock, bfloat16, fp8)] == ["stock", "hk", "hk"]
    assert [list(s.arguments) for s in (stock, fp8)] == [[], ["--quantization", "hk_fp8"]]
    assert mixed.may_differ == {"dtype", "arguments"}
    assert plan(tmp_path).may_differ == set()
    assert "dtype" in str(differences([stock, bfloat16]))
    assert differences([stock, bfloat16, fp8], mixed.may_differ) == []


@pytest.mark.parametrize("name", ["HK", "", "hk:", "stock::hk_fp8", "hk:auto:hk_fp8:more"])
def test_a_name_that_is_no_candidate_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not BACKEND, BACKEND:DTYPE or") as caught:
        Candidate.parse(name)
    assert repr(name) in str(caught.value)


def test_a_run_keeps_the_client_s_numbers(measure_with: Any) -> None:
    """A run keeps the client's numbers, and does not take an old result file for a new one."""
    found = measure_with(Client({**ALL, **GOOD, "date": "today"}))
    assert (found.error, found.metrics, found.routed_share) == ("", GOOD, 1.0)
    assert "No such file" in measure_with(Client(None)).error


@pytest.mark.parametrize(
    ("fallbacks", "error"),
    [([LEFT], ""), ([LEFT, "odd"], "HK computed nothing"), (["odd"], "HK computed nothing")],
)
def test_a_run_may_be_left_whole_to_an_engine_that_is_faster(
    measure_with: Any, fallbacks: list[str], error: str
) -> None:
    """A run in which HK computes nothing passes if the engine is faster; any other reason fails
    it."""
    found = measure_with(Client({**ALL, **GOOD}), "hk", 0, fallbacks)
    assert (found.error, found.metrics) == (error, {} if error else GOOD)
    assert found.routed_share == 0.0


def test_both_backends_are_sent_the_same_requests(measure_with: Any, tmp_path: Path) -> None:
    client = Client({**ALL, **GOOD})
    for backend in ("stock", "hk"):
        measure_with(client, backend)
    differing = {a for a, b in zip(*client.commands, strict=True) if a != b}
    assert all("stock" in part or "127.0.0.1" in part for part in differing), differing
    seeds = {c[c.index("--seed") + 1] for c in client.commands}
    assert len(seeds) == 1


@pytest.mark.parametrize(
    ("client", "served", "why"),
    [
        (Client(None, 1, "Traceback\nConnectionError: refused"), 1, "ConnectionError: refused"),
        (Client(None), 1, "No such file"),
        (Client({**ALL, "completed": 3, **GOOD}), 1, "3 of 4 requests were answered"),
        (Client({**GOOD}), 1, "None of 4 requests"),
        (Client({**ALL, "median_ttft_ms": 1.0}), 1, "no total_token_throughput"),
        (Client({**ALL, **GOOD}), 0, "HK computed nothing"),
        (Client({"completed": 4, **GOOD}), 1, "no total_input_tokens, total_output_tokens"),
        (
            Client({**ALL, **GOOD, "total_output_tokens": 17}),
            1,
            "17 tokens were generated of the 16 asked for",
        ),
    ],
)
def test_a_failed_run_has_a_reason_and_no_numbers(
    measure_with: Any, client: Client, served: int, why: str
) -> None:
    found = measure_with(client, "hk", served)
    assert why in found.error
    assert found.metrics == {}


def test_llama_cpp_makes_as_many_tokens_of_the_prompts(measure_with: Any) -> None:
    """llama.cpp makes as many tokens of the prompts as the engine, or its run fails. Its tokenizer
    may put a token before each prompt. The candidate that runs first alternates by round."""

    def measured(backend: Backend, tokens: int, turn: int) -> Run:
        found = measure_with(Client({**ALL, **GOOD, "total_input_tokens": tokens}), backend)
        return replace(found, turn=turn)

    same = [measured("hk", 260, 0), measured("llama.cpp", 260, 0)]
    assert fail_other_prompts(same) == []
    other = [measured("llama.cpp", 256, 1), measured("stock", 260, 1)]
    runs = [*same, *other]
    assert fail_other_prompts(runs) == other[:1]
    assert other[0].error == "llama.cpp made 256 tokens of the prompts, stock 260"
    assert other[0].metrics == {}
    assert fail_other_prompts(runs) == []  # said once
    assert [bool(each.error) for each in runs] == [False, False, True, False]


def test_a_point_is_the_median_of_its_runs() -> None:
    """A run that failed fails its point, and no other."""
    values = [10.0, 30.0, 11.0]
    runs = [run("hk", turn, median_ttft_ms=value) for turn, value in enumerate(values)]
    (point,) = summarize(runs)
    assert point.medians["median_ttft_ms"] == 11.0
    assert point.samples["median_ttft_ms"] == values
    stock, hk = summarize([run("stock"), run("hk"), run("hk", 1, error="died")])
    assert stock.error == ""
    assert (hk.error, hk.medians) == ("1 of 2 runs failed: died", {})


TINY = LinearCase("tiny", 40, 64, 128)
SWEEPS: dict[str, TimedSweep] = {
    "attention": AttentionSweep([AttentionCase(48, 4, 2, 64, "fp32")], ["packed"], 1),
    "linear": LinearSweep([TINY], ["bf16", "mxfp4"], True, 1),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_writes_its_numbers_a_table_and_plots(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "MATMUL_SIZE", 16)
    told: list[str] = []
    rows = measure(OPERATORS[name], SWEEPS[name], tmp_path, told.append)
    assert [row.error for row in rows] == [""] * len(rows)
    report = json.loads((tmp_path / f"{name}.json").read_text())
    assert len(report["cases"]) == len(rows)
    assert report["environment"]["rounds"] == 1
    lines = (tmp_path / f"{name}.md").read_text().splitlines()
    assert sum(line.startswith("|") for line in lines) == len(rows) + 2
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    svg = (tmp_path / f"{name}.svg").read_text()
    assert "<svg" in svg
    for key in ("cpu", "device", "torch"):
        assert str(report["environment"][key]) in svg
    assert "medians of 1 rounds" in svg
    assert told


@pytest.mark.parametrize("command", [["kernels"], ["serve", "--model", "."]])
def test_without_the_extra_for_plots(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots need an extra that the demo lacks: one line names it before any work is done."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("plots: ")
    assert "-m pip install 'matplotlib" in line
