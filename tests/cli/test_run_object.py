"""`hk-backend run-object`: findings, counters, files and errors of a kernel that is not ours."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from hk_backend.cli.app import app
from tests.lab.foreign.scale import SCALE, UNWAITED, write

COUNT = 200
LAUNCH = ("--grid", "4", "--block", "64")
X, OUT, NUMBER, FACTOR = f"f32[{COUNT}]=arange", f"f32[{COUNT}]=nan", str(COUNT), "0.5"
GIVEN = (X, OUT, NUMBER, FACTOR)


def args(*values: str) -> list[str]:
    return [word for value in values for word in ("--arg", value)]


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["run-object", *map(str, words)])


def document(*words: str | Path, code: int = 0) -> Any:
    result = run(*words, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def scale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("objects") / "scale.co", SCALE)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the kernels k, and k1 without its wait."""
    return write(tmp_path_factory.mktemp("objects") / "both.co", SCALE, UNWAITED, dwarf=4)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")


def in_one_line(result: Result) -> str:
    """An error's text without the frame around it."""
    return " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_a_kernel_runs_and_its_result_is_saved(arch: str, tmp_path: Path) -> None:
    file = write(tmp_path / "scale.co", SCALE, arch=arch)
    saved = tmp_path / "out.npy"
    result = run(file, *LAUNCH, *args(*GIVEN), "--save", f"1={saved}", "--threads", "2")
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.load(saved), np.arange(COUNT, dtype=np.float32) / 2)
    assert f"k on {arch}, grid 4, block 64\nno findings\n" in result.stdout
    assert f"saved: {saved}" in result.stdout
    assert re.search(rf"global read bytes +{4 * COUNT + 4 * 32:,}\n", result.stdout)
    assert re.search(rf"global write bytes +{4 * COUNT:,}\n", result.stdout)
    assert re.search(r"vmem_store +4 ", result.stdout)


def test_the_document_has_the_same(scale: Path, tmp_path: Path) -> None:
    saved = tmp_path / "out.npy"
    data = document(scale, "k", *LAUNCH, *args(*GIVEN), "--save", f"1={saved}", "--seed", "3")
    assert (data["grid"], data["block"], data["seed"]) == ([4], [64], 3)
    assert data["findings"] == []
    assert data["saved"] == [str(saved)]
    assert data["time"] is None
    assert data["values"] == list(GIVEN)
    counters = data["counters"]
    assert counters["bytes"]["global_write"] == 4 * COUNT
    assert counters["matrix_flops"] == 0
    assert sum(counters["by_class"].values()) == counters["instructions"]
    assert counters["by_mnemonic"]["s_endpgm"] == 4


def test_findings_stand_under_their_source_line(both: Path) -> None:
    """Without the wait, lines 13 and 14 read what has not arrived; 13 also overwrites it."""
    result = run(both, "k1", *LAUNCH, *args(*GIVEN))
    assert result.exit_code == 1
    shown = [line.partition(": ")[0] for line in result.stdout.split("\n\n")[0].splitlines()[1:]]
    assert shown == [
        "12 findings",
        "/kernels/scale.s:13",
        "  unwaited-register",
        "  overwritten-in-flight",
        "/kernels/scale.s:14",
        "  unwaited-register",
    ]
    assert result.stdout.count("(4 times)\n") == 3
    found = document(both, "k1", *LAUNCH, *args(*GIVEN), code=1)["findings"]
    assert Counter((each["source"][-2:], each["check"]) for each in found) == {
        ("13", "unwaited-register"): 4,
        ("13", "overwritten-in-flight"): 4,
        ("14", "unwaited-register"): 4,
    }
    assert {each["workgroup"] for each in found} == {0, 1, 2, 3}


def test_a_short_tensor_is_named_by_its_argument(scale: Path) -> None:
    result = run(scale, *LAUNCH, *args(X, "f32[199]=nan", NUMBER, FACTOR))
    assert result.exit_code == 1
    assert "1 finding\n/kernels/scale.s:14\n  out-of-bounds: " in result.stdout
    assert "'argument 1' has 796 bytes" in result.stdout


def test_arguments_are_listed(scale: Path, both: Path) -> None:
    """The user asks for the list, or gives too few or too many."""
    listed = run(scale, "--list")
    assert listed.exit_code == 0
    rows = [line.split() for line in listed.stdout.splitlines()]
    assert rows == [
        ["k", "(gfx950)"],
        ["number", "name", "kind", "size", "offset"],
        ["0", "x", "global_buffer", "8", "0"],
        ["1", "out", "global_buffer", "8", "8"],
        ["2", "count", "by_value", "4", "16"],
        ["3", "factor", "by_value", "4", "20"],
    ]
    (kernel,) = document(scale, "--list")
    assert [a["name"] for a in kernel["arguments"]] == ["x", "out", "count", "factor"]
    assert kernel["hidden_arguments"] == ["hidden_block_count_x", "hidden_none"]
    missing = run(scale, *LAUNCH, *args("none"))
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert listed.stdout in missing.stderr
    assert "Invalid value for --arg: 1 given; k declares 4" in missing.stderr
    assert run(both, "k1", "--list").stdout == listed.stdout.replace("k (", "k1 (")


def test_a_file_of_several_kernels_lists_them(both: Path) -> None:
    listed = run(both, "--list")
    assert [line.split()[:2] for line in listed.stdout.splitlines()[1:]] == [
        ["k", "4"],
        ["k1", "4"],
    ]
    assert [kernel["name"] for kernel in document(both, "--list")] == ["k", "k1"]
    for words, said in (((), "it is missing; valid: k, k1"), (("k2",), "'k2'; valid: k, k1")):
        result = run(both, *words, *LAUNCH, *args(*GIVEN))
        assert (result.exit_code, result.stdout) == (2, "")
        assert listed.stdout in result.stderr
        assert f"Invalid value for KERNEL: {said}" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--block", "64"), "--grid: it is missing"),
        (("--grid", "4"), "--block: it is missing"),
        (("--grid", "4,", "--block", "64"), "--grid: '4,'; valid: one to three numbers from 1 on"),
        (("--grid", "0", "--block", "64"), "--grid: '0'; valid: one to three numbers from 1 on"),
        (("--grid", "1,1,1,1", "--block", "64"), "--grid: '1,1,1,1'; valid: one to three numbers"),
        (("--grid", "4", "--block", "x"), "--block: 'x'; valid: one to three numbers from 1 on"),
        ((*LAUNCH, *args("f32[2]=one", OUT, NUMBER, FACTOR)), "number 0 (x) is 'f32[2]=one'"),
        ((*LAUNCH, *args(*GIVEN), "--save", "2=x.npy"), "'2=x.npy'; valid: NUMBER=FILE; numbers"),
        ((*LAUNCH, *args(*GIVEN), "--save", "1"), "--save: '1'; valid: NUMBER=FILE; numbers of"),
        ((*LAUNCH, *args(*GIVEN), "--save", "1=/no/x.npy"), "--save: /no is not a folder"),
        ((*LAUNCH, *args(*GIVEN), "--no-run"), "--no-run: nothing is left to do without --time"),
        ((*LAUNCH, *args(*GIVEN), "--seed", "-1"), "--seed"),
        ((*LAUNCH, *args(*GIVEN), "--dynamic-lds", "-1"), "--dynamic-lds"),
    ],
)  # fmt: skip
def test_errors_of_the_command_line(words: tuple[str, ...], said: str, scale: Path) -> None:
    result = run(scale, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in in_one_line(result)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--grid", "4", "--block", "2048", *args(*GIVEN)), "block of 2048 work-items; valid: 1"),
        ((*LAUNCH, *args(*GIVEN), "--dynamic-lds", "200000"), "200000 bytes of LDS; the machine"),
        ((*LAUNCH, *args(X, "0.5", NUMBER, FACTOR)), "number 1 (out) is 0.5; valid: an address, o"),
        ((*LAUNCH, *args(X, OUT, str(2**40), FACTOR)), f"number 2 (count) is {2**40}; v"),
    ],
)  # fmt: skip
def test_launches_that_cannot_be_made(words: tuple[str, ...], said: str, scale: Path) -> None:
    result = run(scale, *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "x.co"
    assert run(path, "--list").exit_code == 2
    path.write_bytes(b"no code object")
    result = run(path, "--list")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"{path}: ")


# --- time -----------------------------------------------------------------------------------------


def test_what_the_clock_says(scale: Path) -> None:
    data = document(scale, *LAUNCH, *args(*GIVEN), "--time")
    took = data["time"]
    assert took["modelled"] is True
    assert took["microseconds"] > 0
    assert took["tflops"] is None
    assert took["workgroup"]["waves"] == 1
    lines = {row["line"] for row in took["workgroup"]["lines"]}
    assert lines >= {f"/kernels/scale.s:{number}" for number in (10, 12, 13, 14)}
    text = run(scale, *LAUNCH, *args(*GIVEN), "--time").stdout
    assert f"{took['microseconds']:,.4g} us\n" in text
    assert "modelled, not compared with any published figure" in text
    assert "bound by" in text


def test_findings_are_reported_although_the_clock_cannot_run(scale: Path) -> None:
    """The clock stops at an access that is not mapped; the findings still stand there."""
    words = (scale, *LAUNCH, *args(X, "f32[100]=nan", NUMBER, FACTOR), "--time")
    result = run(*words)
    assert result.exit_code == 1
    assert "finding" in result.stdout.splitlines()[1]
    assert "not timed: trace: out-of-bounds: " in result.stdout
    data = document(*words, code=1)
    assert data["time"] is None
    assert data["untimed"].startswith("trace: out-of-bounds: ")
    alone = run(*words, "--no-run")
    assert (alone.exit_code, alone.stdout) == (1, "")
    assert alone.stderr.startswith("trace: out-of-bounds: ")


def test_only_the_clock(scale: Path) -> None:
    """The time is the same without a run, which leaves the tensors of the clock alone."""
    with_run = document(scale, *LAUNCH, *args(*GIVEN), "--time")
    without = document(scale, *LAUNCH, *args(*GIVEN), "--time", "--no-run")
    assert (without["findings"], without["counters"]) == (None, None)
    assert without["time"] == with_run["time"]
    refused = run(scale, *LAUNCH, *args(*GIVEN), "--time", "--no-run", "--save", "1=x.npy")
    assert refused.exit_code == 2
    assert "--save: '1=x.npy' needs a run" in refused.stderr
