"""`hk-backend tune-kernels`: the launches that it keeps, what it goes on with, what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from hk_backend.bench.gemm import timers
from hk_backend.bench.gemm.timers import Problem
from hk_backend.cli.app import app
from hk_backend.kernels.catalogue import catalogue
from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.gemm_formats import LAYERS, family
from hk_backend.measurements import folder
from hk_backend.measurements.launches import timed_on
from hk_backend.measurements.machine import this_machine
from hk_backend.terms.measurements import MeasuredLaunch
from tests.measurements.launches import EMULATED, timed

N, K = 256, 512
SHAPES = f"1x{N}x{K},64x{N}x{K}"
FAMILY = family(catalogue("gfx950"), LAYERS["bf16"])


@pytest.fixture(autouse=True)
def kept() -> Iterator[Path]:
    """The folder of measurements, without launches."""
    with timed() as folder:
        yield folder


def run(*options: str, device: str = EMULATED) -> Result:
    return CliRunner().invoke(app, ["tune-kernels", "--device", device, *options])


def modelled(*options: str, shapes: str = SHAPES) -> dict[str, Any]:
    result = run("--shapes", shapes, "--formats", "bf16", "--json", *options)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def launches() -> list[MeasuredLaunch]:
    return sorted(folder.read(this_machine(EMULATED)).launches, key=lambda each: each.m)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Questions to a clock, which answers in their order: the second of each problem is the
    fastest."""
    questions: list[tuple[str, int, int]] = []

    def microseconds(self: object, entry: KernelEntry, splits: int, of: Problem) -> float:
        before = sum(m == of.m for _, _, m in questions)
        questions.append((entry.name, splits, of.m))
        return [20.0, 10.0, 30.0, 40.0][before % 4]

    monkeypatch.setattr(timers.Clock, "microseconds", microseconds)
    return questions


def test_the_fastest_of_the_candidates_is_kept(asked: list[tuple[str, int, int]]) -> None:
    data = modelled()
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
    chosen = timed_on(EMULATED).choose(FAMILY, 64, N, K, 256)
    assert (chosen.entry.name, chosen.source) == (found[1].kernel, "modelled")


def test_the_clock_decides() -> None:
    (each,) = modelled("--candidates", "2", shapes=f"16x{N}x{K}")["launches"]
    assert 0 < each["microseconds"] <= each["planned_choice_microseconds"]
    assert each["compute_units"] == 256


@pytest.mark.parametrize(
    ("fails", "error", "exit_code", "said"),
    [
        (64, KeyboardInterrupt(), 130, " has 1 launches; run the same command."),
        (1, RuntimeError("a buffer's end"), 1, f"bf16 x bf16 1x{N}x{K}: a buffer's end"),
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
        assert "1 launches timed, 0 were there" in result.stdout


def test_models_are_their_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each weight with each number of rows, once: both kinds of FP8 have the same kernels."""
    monkeypatch.setattr(timers.Clock, "microseconds", lambda *_: 10.0)
    options = ["--model", "llama8b", "--tp", "1,8", "--tokens", "1,64"]
    result = run(*options, "--formats", "fp8_channel,fp8_tensor")
    assert result.exit_code == 0, result.output
    found = launches()
    assert len(found) == 2 * 4 * 2
    formats = {(each.activations, each.weights, each.scales) for each in found}
    assert formats == {tuple(LAYERS["fp8_channel"])}
    assert {(each.n, each.k) for each in found} >= {(6144, 4096), (4096, 1792)}


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
def test_errors_name_what_is_wrong(
    options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    result = run(*options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not launches()


def test_without_a_gpu_the_command_says_so() -> None:
    result = run("--shapes", SHAPES, device="hip")
    assert result.exit_code == 1
    assert "HIP" in result.stderr
    assert len(result.stderr.splitlines()) == 1
