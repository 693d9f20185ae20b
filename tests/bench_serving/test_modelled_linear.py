"""The linear layers of `bench_serving kernels --modelled`, and their table in the docs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench_serving import modelled, modelled_linear, modelled_report
from bench_serving.__main__ import app
from bench_serving.modelled_linear import BEGIN, END, put_into, table_of
from bench_serving.modelled_report import DocumentError
from hk_backend.bench.gemm import timers
from hk_backend.bench.gemm.compare import Case, OnDevice, Row, summary
from hk_backend.bench.gemm.timers import Clock
from hk_backend.measurements.launches import Launches
from tests.seed import draw

DOCUMENT = Path(__file__).parents[2] / "docs" / "benchmarks.md"
PLAN = OnDevice.parse(Clock(modelled.ARCH, 2), Launches())


def row(case: Case, ratio: float) -> Row:
    return Row(case, "modelled", "a_kernel", 3, case.stock.microseconds / ratio)


def line_of(text: str, case: Case) -> list[str]:
    """The cells of a case in the tables of a text."""
    heading = f"### {case.layer.format}, published: {case.stock.source}\n"
    section = text.partition(heading)[2].partition("###")[0]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines()]
    (found,) = [
        cells
        for cells in lines
        if len(cells) > 1 and case.shape in cells[0] and cells[1] == str(case.m)
    ]
    return found


OTHERS = f"{modelled_report.BEGIN}old tables\n{modelled_report.END}"


def test_tables_go_between_their_own_marks(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    rows = [row(case, 2) for case in PLAN.cases]
    document.write_text(f"{OTHERS}{BEGIN}stale\n{END}after\n")
    put_into(document, rows)
    once = document.read_text()
    assert once.startswith(OTHERS)
    assert once.endswith("after\n")
    assert "stale" not in once
    assert table_of(rows) in once
    assert summary(rows) in once
    put_into(document, rows)
    assert document.read_text() == once
    document.write_text(OTHERS)
    with pytest.raises(DocumentError, match="no lines <!-- modelled linear layers"):
        put_into(document, rows)
    document.write_text(modelled_report.BEGIN)
    with pytest.raises(DocumentError, match=r"no lines <!-- modelled"):
        modelled_report.put_into(document, [])


@pytest.mark.parametrize(("chosen", "both"), [("linear", False), ("linear,gemm n1024", True)])
def test_the_command(
    chosen: str, both: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It prints tables, and tells its progress aside. `--cases linear` leaves the others alone."""
    monkeypatch.setattr(timers.Clock, "microseconds", lambda *_: 10.0)
    document = tmp_path / "document.md"
    document.write_text(f"{OTHERS}{BEGIN}{END}")
    options = ["--cases", chosen, "--out", str(tmp_path), "--into", str(document)]
    result = CliRunner().invoke(app, ["kernels", "--modelled", *options])
    assert result.exit_code == 0, result.output
    written = json.loads((tmp_path / "modelled_linear.json").read_text())
    assert len(written["cases"]) == len(PLAN.cases)
    text = document.read_text()
    assert line_of(text, PLAN.cases[0])[2].startswith("10 (")
    assert ("old tables" in text) is not both
    for shown in (text, result.stdout):
        assert ("| hipBLASLt, published | 168 |" in shown) is both
    assert ("1/1 gemm bf16 n1024: " in result.stderr) is both
    assert "1/1" not in result.stdout
    assert (tmp_path / "modelled.json").exists() is both
    assert f"{len(PLAN.cases)}/{len(PLAN.cases)}" in result.stderr


def check(chosen: list[Case]) -> None:
    text = DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0]
    plan = OnDevice(chosen, PLAN.timer)
    for found in plan.run(lambda line: None):
        cells = line_of(table_of([found]), found.case)
        assert line_of(text, found.case) == cells, f"{found.case}: run make modelled"


def test_the_documented_figures_are_the_model_s() -> None:
    text = DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0]
    assert text.count("\n| llama") + text.count("\n| 1") + text.count("\n| 2") == len(PLAN.cases)
    assert modelled_linear.WORD not in {word for case in PLAN.cases for word in str(case).split()}
    check([draw("documented linear").choice(PLAN.cases)])


@pytest.mark.slow
def test_all_documented_figures_are_the_model_s() -> None:
    check(list(PLAN.cases))
