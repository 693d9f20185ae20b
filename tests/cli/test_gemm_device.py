"""`bench linear --device` and `time gemm --explain`: published figures, the planner's choice and
its rivals. `tune-kernels`: the launches that it keeps, and its refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from hk_backend.cli.app import app
from hk_backend.kernels.catalogue import catalogue
from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.gemm_choice import planned
from hk_backend.kernels.gemm_operands import LAYERS, family
from hk_backend.kernels.gemm_plan import candidates
from hk_backend.lab.bench.gemm import compare, timers
from hk_backend.lab.bench.gemm.compare import LaunchComparison, PublishedSweep, summary
from hk_backend.lab.bench.gemm.explain import RIVALS
from hk_backend.lab.bench.gemm.published import STOCK, known
from hk_backend.lab.bench.gemm.timers import Clock, Problem
from hk_backend.lab.tables import markdown
from hk_backend.lab.timing import calibration
from hk_backend.measurements import folder
from hk_backend.measurements.launches import Launches, timed_on
from hk_backend.measurements.machine import this_machine
from hk_backend.terms.measurements import MeasuredLaunch
from tests.measurements.launches import EMULATED, UNITS, launch, timed

KERNELS = catalogue("gfx950")
SMALL = ["--layers", "1024x1024", "--formats", "bf16"]
M, N, K = 256, 10240, 8192
SHAPE = f"m={M},n={N},k={K}"
FORMAT = "fp8_channel"
FAMILY = family(KERNELS, LAYERS[FORMAT])


def bench(*options: str) -> Result:
    return CliRunner().invoke(app, ["bench", "linear", "--device", EMULATED, *options])


def cases(*options: str) -> list[dict[str, Any]]:
    result = bench("--json", *options)
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = json.loads(result.stdout)
    assert data["environment"]["figures"] == calibration.statement("gemm")
    found: list[dict[str, Any]] = data["cases"]
    return found


def explain(
    *options: str, kernel: str = "gemm", shape: str = SHAPE, format: str = FORMAT
) -> Result:
    named = ["time", kernel, "--explain", "--shape", shape, "--format", format]
    return CliRunner().invoke(app, [*named, *options])


def explained(*options: str, shape: str = SHAPE, format: str = FORMAT) -> dict[str, Any]:
    result = explain("--json", *options, shape=shape, format=format)
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = json.loads(result.stdout)
    return data


def answer(monkeypatch: pytest.MonkeyPatch, clock: Any) -> None:
    """Makes every clock give this answer."""
    monkeypatch.setattr(timers.Clock, "microseconds", clock)


def test_every_published_figure_of_our_formats_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options choose among the figures. Where a tuned launch exists, that launch is timed."""
    answer(monkeypatch, lambda *_: 100.0)
    found = {(each["format"], each["n"], each["k"], each["m"]): each for each in cases()}
    served = [each for each in STOCK if family(KERNELS, LAYERS[each.format])]
    assert found.keys() == {(s.format, s.n, s.k, m) for s in served for m in s.times}
    for (format, n, k, m), row in found.items():
        best = known(format, n, k)[m]
        assert (row["stock"], row["stock_source"]) == best
        assert row["HK/stock"] == best.microseconds / 100.0
        chosen = planned(family(KERNELS, LAYERS[format]), m, n, k, UNITS)
        assert (row["kernel"], row["splits"]) == (chosen.entry.name, chosen.splits)
    few = cases("--layers", "llama70b-qkv,llama70b-o", "--tokens", "1,256")
    assert {each["layer"] for each in few} == {"llama70b-qkv", "llama70b-o"}
    assert {each["m"] for each in few} == {1, 256}
    assert {each["format"] for each in cases("--formats", "bf16")} == {"bf16"}
    last = launch(family(KERNELS, LAYERS["bf16"]), 1024, 1024, 1024)
    with timed(last):
        (row,) = cases(*SMALL)
    assert (row["kernel"], row["splits"]) == (last.kernel, last.splits)
    assert row["microseconds"] == 100.0, "timed, not read"


def test_losses_stand_beside_wins() -> None:
    plan = PublishedSweep.parse(Clock("gfx950", 1), Launches(), formats="bf16")
    ratios = (2.0, 1.01, 0.99, 0.5)
    rows = [
        LaunchComparison(case, "modelled", "a_kernel", 1, case.stock.microseconds / ratio)
        for case, ratio in zip(plan.cases, ratios, strict=False)
    ]
    assert summary(rows) == (
        "2 wins, 2 losses, 0 failed; smallest ratio to stock 0.50; 2 within the model's error of 1"
    )
    lines = markdown(compare.HEADINGS, map(compare.TABLE.cells, rows)).splitlines()[2:]
    shown = [line.split(" | ")[compare.HEADINGS.index("HK/stock")] for line in lines]
    assert shown == ["2.00", "1.01", "0.99", "0.50"]
    assert all("modelled ±5%" in line for line in lines)


def test_the_choice_is_first_and_its_rivals_follow_by_their_times() -> None:
    data = explained()
    chosen = planned(FAMILY, M, N, K, UNITS)
    assert (data["kernel"], data["splits"]) == (chosen.entry.name, chosen.splits)
    assert (data["microseconds"], data["source"]) == (chosen.microseconds, "planned")
    assert data["model_error_rms"] == calibration.error_of("gemm")
    rivals = data["rivals"]
    assert (rivals[0]["kernel"], rivals[0]["splits"]) == (data["kernel"], data["splits"])
    times = sorted(each.microseconds for each in candidates(FAMILY, M, N, K, UNITS))
    assert [each["planned"] for each in rivals] == times[:RIVALS]
    for each in rivals:
        entry = KERNELS.kernel(each["kernel"])
        tile = entry.tile
        assert each["tile"] == f"{tile.rows}x{tile.columns}x{tile.depth}"
        assert each["workgroups"] == -(-M // tile.rows) * -(-N // tile.columns) * each["splits"]
        assert each["rounds"] >= each["workgroups"] / UNITS / 16
        assert each["clocked"] is None


def test_the_clock_times_as_many_as_asked() -> None:
    shape = (16, 512, 512)
    data = explained("--clocked", "2", shape="m=16,n=512,k=512", format="bf16")
    clock = Clock("gfx950", 1)
    problem = Problem(LAYERS["bf16"], *shape)
    for each in data["rivals"][:2]:
        entry = KERNELS.kernel(each["kernel"])
        assert each["clocked"] == clock.microseconds(entry, each["splits"], problem)
    assert all(each["clocked"] is None for each in data["rivals"][2:])


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("bench --layers smollm2-o", "--layers: 'smollm2-o' is not one of llama70b-qkv"),
        ("bench --tokens 3", "--tokens: '3' is not one of 1, 16, "),
        ("bench --formats int4", "--formats: 'int4' is not one of fp8_channel"),
        ("bench --isa avx2", "--isa: not with --device emulated:gfx950"),
        ("bench --rounds 3", "--rounds: not with --device emulated:gfx950"),
        ("bench --weight-only", "--weight-only: not with --device emulated:gfx950"),
        (
            {"kernel": "attention_prefill"},
            "KERNEL: 'attention_prefill' is not valid with --explain",
        ),
        ({"kernel": ""}, "KERNEL: '' is not valid with --explain: expected attention or gemm"),
        ({"shape": "m=1,n=2"}, "--shape: k is missing; valid: k=NUMBER"),
        ({"shape": "tokens=1"}, "--shape: 'tokens=1' has no name of a size; valid: m, n, k"),
        ({"format": "int4"}, "--format: 'int4' is not one of bf16, "),
    ],
)
def test_errors_name_what_is_wrong(
    command: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    result = bench(*command.split()[1:]) if isinstance(command, str) else explain(**command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


SHAPES = "1x256x512,64x256x512"


@pytest.fixture(autouse=True)
def kept() -> Iterator[Path]:
    """An empty folder of measurements."""
    with timed() as folder:
        yield folder


def run(*options: str) -> Result:
    return CliRunner().invoke(app, ["tune-kernels", "--device", EMULATED, *options])


def launches() -> list[MeasuredLaunch]:
    return sorted(folder.read(this_machine(EMULATED)).launches, key=lambda each: each.m)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """The questions that a fake clock was asked. Its answers come in order, and the second launch
    of each problem is the fastest."""
    questions: list[tuple[str, int, int]] = []

    def microseconds(self: object, entry: KernelEntry, splits: int, of: Problem) -> float:
        before = sum(m == of.m for _, _, m in questions)
        questions.append((entry.name, splits, of.m))
        return [20.0, 10.0, 30.0, 40.0][before % 4]

    monkeypatch.setattr(timers.Clock, "microseconds", microseconds)
    return questions


def test_the_fastest_of_the_candidates_is_kept(asked: list[tuple[str, int, int]]) -> None:
    result = run("--shapes", SHAPES, "--formats", "bf16", "--json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    found = launches()
    written = [
        {name: value for name, value in each.items() if name[:7] != "planned"}
        for each in data["launches"]
    ]
    assert written == [each.model_dump() for each in found]
    assert [each.m for each in found] == [1, 64]
    for each in found:
        second = [question for question in asked if question[2] == each.m][1]
        assert (each.kernel, each.splits) == second[:2]
        assert (each.microseconds, each.source) == (10.0, "modelled")
    assert [each["planned_choice_microseconds"] for each in data["launches"]] == [20.0, 20.0]
    timed_on.cache_clear()
    chosen = timed_on(EMULATED).choose(family(KERNELS, LAYERS["bf16"]), 64, 256, 512, 256)
    assert (chosen.entry.name, chosen.source) == (found[1].kernel, "modelled")


@pytest.mark.parametrize(
    ("fails", "error", "exit_code", "said"),
    [
        (64, KeyboardInterrupt(), 130, " has 1 launches; run the same command."),
        (1, RuntimeError("a buffer's end"), 1, "bf16 x bf16 1x256x512: a buffer's end"),
    ],
    ids=["Ctrl-C", "a launch that fails"],
)
def test_what_there_is_is_kept(
    fails: int, error: BaseException, exit_code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def microseconds(self: object, entry: KernelEntry, splits: int, of: Problem) -> float:
        if of.m == fails:
            raise error
        return 10.0

    monkeypatch.setattr(timers.Clock, "microseconds", microseconds)
    result = run("--shapes", SHAPES, "--formats", "bf16")
    assert result.exit_code == exit_code
    assert said in result.stderr
    assert [each.m for each in launches()] == [65 - fails]
    if exit_code == 1:
        assert "1 launches timed, 0 were already in the file" in result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--shapes", "16x4096"], "--shapes: '16x4096' is not MxNxK, as in 16x6144x4096"),
        (["--shapes", "0x1x1"], "--shapes: '0x1x1' is not MxNxK"),
        (["--formats", "int4"], "--formats: 'int4' is not one of bf16"),
        (["--model", "gpt"], "--model: 'gpt' is not one of llama8b, llama70b"),
        (["--tp", "3"], "--tp: 3 GPUs do not divide 32 heads evenly"),
        (["--tokens", "0"], "--tokens: '0' is not a positive number"),
        (["--device", "emulated:gfx90a"], "--device: arch 'gfx90a'; valid: "),
        (["--device", "cpu"], "--device: 'cpu' is not hip or emulated:ARCH"),
        (["--candidates", "0"], "--candidates"),
    ],
)
def test_errors_of_tune_kernels(
    options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    result = run(*options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not launches()
