"""`python -m bench_serving kernels --modelled`: files, and tables in a document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench_serving import modelled, modelled_report
from bench_serving.__main__ import app
from bench_serving.modelled import ModelledCase, ModelledKernel, cases
from bench_serving.modelled_linear import BEGIN, END, table_of
from bench_serving.published import SIZES
from hk_backend.kernels.catalogue import catalogue
from hk_backend.lab.bench.gemm import compare, timers
from hk_backend.lab.bench.gemm.compare import PublishedSweep
from hk_backend.lab.bench.gemm.timers import Clock
from hk_backend.lab.timing import calibration
from hk_backend.lab.timing.busiest import Busiest
from hk_backend.measurements.launches import Launches
from tests.models import ROOT
from tests.seed import draw

KERNELS = catalogue(modelled.ARCH)
SMALL = "d128 causal b1 32/8 n1024,gemm n1024"
DOCUMENT = ROOT / "docs" / "benchmarks.md"


def row(case: ModelledCase, ratio: float) -> ModelledKernel:
    """With a figure of that ratio to the best peer."""
    return ModelledKernel(
        case, case.kernels[0].name, ratio * max(case.peers.values()), 10, Busiest("matrix", 0.5)
    )


def test_files_of_a_small_choice(tmp_path: Path) -> None:
    told: list[str] = []
    rows = modelled_report.model(KERNELS, cases(KERNELS, SMALL), 2, tmp_path, told.append)
    assert [row.error for row in rows] == [""] * 8
    assert len(told) == 8
    report = json.loads((tmp_path / "modelled.json").read_text())
    for case in report["cases"]:
        assert case["modelled_error_rms"] == calibration.error_of("gemm")
        peers = case["published_tflops"]
        assert peers[case["best_peer"]] == max(peers.values())
        ratio = case["modelled_tflops"] / max(peers.values())
        assert case["ratio_to_best_peer"] == pytest.approx(ratio, rel=0.01)
        assert 0 < case["busiest_share"] <= 1
    text = (tmp_path / "modelled.md").read_text()
    said = calibration.statement("gemm")
    assert said in text
    assert text.count(f", modelled ±{calibration.error_of('gemm'):.0%} |") == 9
    svg = (tmp_path / "modelled.svg").read_text()
    for line in {case.line for case in cases(KERNELS, SMALL)}:
        assert f"{line}, modelled ±" in svg
    assert said in svg
    assert (tmp_path / "modelled.png").stat().st_size > 10_000


def test_losses_stand_beside_wins() -> None:
    packed, paged, _, tokens, *_, tokens_fp8, gemm = cases(KERNELS, SMALL)
    ours, ratios = (packed, paged, tokens, tokens_fp8, gemm), (1.5, 0.98, 1.1, 0.9, 0.5)
    rows = list(map(row, ours, ratios))
    assert modelled_report.summary(rows) == (
        "2 ahead of the best peer, 3 behind, 0 failed; 1 within the model's error of it; "
        "smallest ratio 0.50"
    )
    text = modelled_report.tables_of(rows)
    assert "| 350 (1.50; 1.53) |" in text  # behind the semicolon: to `paged`
    assert "| 228 (**0.98**) |" in text
    assert "| 256 (1.10; 1.12) |" in text
    assert "| 210 (**0.90**; **0.82**) |" in text  # the same cache in bf16
    assert "| 94 (**0.50**, **0.69**) |" in text  # HipKittens: 137 by the model
    assert "| HipKittens, modelled ±" in text
    assert "| hipBLASLt, published | 168 |" in text
    assert "| 350 (1.50) |" in modelled_report.tables_of([row(packed, 1.5)])


def test_a_case_that_fails_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(launch: object, threads: int) -> None:
        raise RuntimeError("a buffer's end")

    monkeypatch.setattr(modelled, "trace", fail)
    rows = modelled_report.model(KERNELS, cases(KERNELS, SMALL), 1, tmp_path, lambda line: None)
    assert [row.error for row in rows] == ["a buffer's end"] * 8
    assert modelled_report.summary(rows) == "0 ahead of the best peer, 0 behind, 8 failed"
    assert "gemm bf16 n1024: failed: a buffer's end" in (tmp_path / "modelled.md").read_text()
    assert {"case", "n", "error"} == set(rows[0].as_json())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--modelled", "--lengths", "512"], "--lengths: not with --modelled"),
        (["--cases", "gemm"], "--cases: only with --modelled"),
        (["--modelled", "--cases", "gemm d64"], "'d64 gemm' is no case"),
    ],
)
def test_options_that_do_not_go_together(
    options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    result = CliRunner().invoke(app, ["kernels", *options])
    assert result.exit_code == 2
    assert message in result.output


def documented(case: ModelledCase) -> float:
    """TFLOP/s of our line in docs/benchmarks.md."""
    section = DOCUMENT.read_text().partition(f"### {case.panel.name}\n")[2].partition("###")[0]
    (line,) = [s for s in section.splitlines() if s.startswith(f"| {case.line}, modelled ±")]
    cell = line.split("|")[2 + SIZES.index(case.size)]
    return float(cell.replace("*", "").split()[0])


PLAN = PublishedSweep.parse(Clock(modelled.ARCH, 2), Launches())


def line_of(text: str, case: compare.PublishedCase) -> list[str]:
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


def test_the_documented_figures_are_the_model_s() -> None:
    check([draw("documented").choice(cases(KERNELS))], [draw("documented").choice(PLAN.cases)])
    text = DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0]
    assert text.count("\n| llama") + text.count("\n| 1") + text.count("\n| 2") == len(PLAN.cases)


@pytest.mark.slow
def test_all_documented_figures_are_the_model_s() -> None:
    check(cases(KERNELS), PLAN.cases)


def check(chosen: list[ModelledCase], linear: Sequence[compare.PublishedCase]) -> None:
    for found in modelled.run(chosen, 2, lambda line: None):
        said = f"{found.case.name}: run make modelled"
        assert documented(found.case) == pytest.approx(found.tflops, abs=1), said
    text = DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0]
    for row in PublishedSweep(list(linear), PLAN.timer).run(lambda line: None):
        cells = line_of(table_of([row]), row.case)
        assert line_of(text, row.case) == cells, f"{row.case}: run make modelled"
