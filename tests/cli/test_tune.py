"""`hk-backend tune`: the file that it writes, what it goes on with, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from hk_backend.bench.gemm import timers
from hk_backend.bench.gemm.timers import Problem
from hk_backend.cli.app import app
from hk_backend.kernels import tuning
from hk_backend.kernels.catalogue import catalogue
from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.gemm_choice import choose
from hk_backend.kernels.gemm_formats import LAYERS, family
from hk_backend.kernels.tuning import Tuned, Tuning, read

N, K = 256, 512
SHAPES = f"1x{N}x{K},64x{N}x{K}"
FAMILY = family(catalogue("gfx950"), LAYERS["bf16"])


def run(path: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["tune", str(path), *options])


def modelled(path: Path, *options: str, shapes: str = SHAPES) -> dict[str, Any]:
    result = run(path, "--modelled", "--shapes", shapes, "--formats", "bf16", "--json", *options)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "times.jsonl"


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """What the clock is asked, which answers in the order of the questions: the second of each
    problem is the fastest."""
    asked: list[tuple[str, int, int]] = []

    def microseconds(self: object, entry: KernelEntry, splits: int, of: Problem) -> float:
        before = sum(m == of.m for _, _, m in asked)
        asked.append((entry.name, splits, of.m))
        return [20.0, 10.0, 30.0, 40.0][before % 4]

    monkeypatch.setattr(timers.Clock, "microseconds", microseconds)
    return asked


def test_the_fastest_of_the_candidates_is_written(
    path: Path, timed: list[tuple[str, int, int]]
) -> None:
    data = modelled(path)
    lines = list(read(path))
    written = [{k: v for k, v in line.items() if k[:7] != "planned"} for line in data["lines"]]
    assert written == [tuning.as_fields(line) for line in lines]
    assert [line.m for line in lines] == [1, 64]
    for line in lines:
        second = [each for each in timed if each[2] == line.m][1]
        assert (line.kernel, line.splits) == second[:2]
        assert (line.microseconds, line.source, line.device) == (10.0, "modelled", "")
    assert [each["planned_choice_microseconds"] for each in data["lines"]] == [20.0, 20.0]
    chosen = choose(FAMILY, 64, N, K, 256, Tuning(lines))
    assert (chosen.entry.name, chosen.source) == (lines[1].kernel, "modelled")


def test_the_clock_decides(path: Path) -> None:
    (line,) = modelled(path, "--candidates", "2", shapes=f"16x{N}x{K}")["lines"]
    assert 0 < line["microseconds"] <= line["planned_choice_microseconds"]
    assert line["compute_units"] == 256


def test_an_interrupted_run_goes_on(path: Path, timed: list[tuple[str, int, int]]) -> None:
    """A half line is what is left of one; the rest is neither timed nor written again."""
    modelled(path)
    whole = path.read_text()
    path.write_text(whole[:-5])
    timed.clear()
    assert modelled(path)["kept"] == 1
    assert {m for _, _, m in timed} == {64}
    assert path.read_text() == whole
    timed.clear()
    assert modelled(path) == {"kept": 2, "lines": []}
    assert not timed


def test_lines_of_other_kernels_are_timed_again(
    path: Path, timed: list[tuple[str, int, int]]
) -> None:
    modelled(path)
    whole = path.read_text()
    stale = [{**json.loads(line), "sha256": "0" * 64} for line in whole.splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in stale))
    assert modelled(path)["kept"] == 0
    assert path.read_text() == whole


def test_what_was_measured_does_not_stand_for_a_model(
    path: Path, timed: list[tuple[str, int, int]]
) -> None:
    modelled(path)
    measured = [
        {**json.loads(line), "source": "measured", "device": "MI355X"}
        for line in path.read_text().splitlines()
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in measured))
    assert len(modelled(path)["lines"]) == 2
    assert len(list(read(path))) == 4


def test_what_the_engine_takes_stands_beside(
    path: Path, timed: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it was measured too: the evidence of whether a layer is served."""
    monkeypatch.setattr(timers.Clock, "source", "measured")
    monkeypatch.setattr(timers.Clock, "device", "MI355X")
    monkeypatch.setattr(timers.Clock, "stock", lambda self, of: ("torch", 10.0 + of.m))
    modelled(path)
    found = [(line.m, line.stock, line.stock_microseconds) for line in read(path)]
    assert found == [(1, "torch", 11.0), (64, "torch", 74.0)]


def test_ctrl_c_keeps_what_there_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def microseconds(self: object, entry: KernelEntry, splits: int, of: Problem) -> float:
        if of.m == 64:
            raise KeyboardInterrupt
        return 10.0

    monkeypatch.setattr(timers.Clock, "microseconds", microseconds)
    options = ["--modelled", "--shapes", SHAPES, "--formats", "bf16"]
    result = run(path, *options)
    assert result.exit_code == 130
    assert f"Interrupted, {path} has 1 lines; run the same command." in result.stderr
    assert [line.m for line in read(path)] == [1]


def test_a_launch_that_fails_is_said_and_the_others_are_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def microseconds(self: object, entry: KernelEntry, splits: int, of: Problem) -> float:
        if of.m == 1:
            raise RuntimeError("a buffer's end")
        return 10.0

    monkeypatch.setattr(timers.Clock, "microseconds", microseconds)
    result = run(path, "--modelled", "--shapes", SHAPES, "--formats", "bf16")
    assert result.exit_code == 1
    assert f"bf16 x bf16 1x{N}x{K}: a buffer's end" in result.stderr
    assert "1 launches timed, 0 were there" in result.stdout
    assert f"HK_TUNING={path}" in result.stdout.replace("\n", "")
    assert [line.m for line in read(path)] == [64]


def test_models_are_their_layers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each weight with each number of rows, once: both kinds of FP8 have the same kernels."""
    monkeypatch.setattr(timers.Clock, "microseconds", lambda *_: 10.0)
    options = ["--model", "llama8b", "--tp", "1,8", "--tokens", "1,64"]
    result = run(path, "--modelled", *options, "--formats", "fp8_channel,fp8_tensor")
    assert result.exit_code == 0, result.output
    lines: list[Tuned] = list(read(path))
    assert len(lines) == 2 * 4 * 2
    assert {line.format for line in lines} == {LAYERS["fp8_channel"]}
    assert {(line.n, line.k) for line in lines} >= {(6144, 4096), (4096, 1792)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--shapes", "16x4096"], "--shapes: '16x4096' is not MxNxK, as in 16x6144x4096"),
        (["--shapes", "0x1x1"], "--shapes: '0x1x1' is not MxNxK"),
        (["--formats", "int4"], "--formats: 'int4' is not one of bf16"),
        (["--model", "gpt"], "--model: 'gpt' is not one of llama8b, llama70b"),
        (["--tp", "3"], "--tp: 3 GPUs do not divide 32 heads evenly"),
        (["--tokens", "0"], "--tokens: '0' is not a positive number"),
        (["--arch", "gfx90a"], "--arch: arch 'gfx90a'; valid: "),
        (["--candidates", "0"], "--candidates"),
    ],
)
def test_errors_name_what_is_wrong(
    options: list[str], message: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    result = run(path, "--modelled", *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not path.exists()


def test_a_file_that_is_none_is_left_alone(path: Path) -> None:
    path.write_text("a letter\n")
    result = run(path, "--modelled", "--shapes", SHAPES)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"{path}, line 1: not JSON")
    assert path.read_text() == "a letter\n"


def test_without_a_gpu_the_command_says_so(path: Path) -> None:
    result = run(path, "--shapes", SHAPES)
    assert result.exit_code == 1
    assert "HIP" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    result = run(path.parent / "none" / "times.jsonl", "--modelled")
    assert result.exit_code == 2
