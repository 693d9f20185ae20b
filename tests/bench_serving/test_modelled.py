"""`python -m bench_serving kernels --modelled`: files, and tables in a document."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench_serving import modelled, modelled_document, modelled_report
from bench_serving.__main__ import app
from bench_serving.modelled import ModelledCase, ModelledKernel, cases
from bench_serving.modelled_document import KERNELS as MARKS
from bench_serving.modelled_document import LINEAR, LINES, SIZES
from bench_serving.published import PANELS
from hk_backend.kernels.catalogue import catalogue
from hk_backend.lab import document as document_writer
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
    """A row whose figure has the given ratio to the best peer."""
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
    assert "| 350 (1.50; 1.53) |" in text  # the part after the semicolon goes to `paged`
    assert "| 228 (**0.98**) |" in text
    assert "| 256 (1.10; 1.12) |" in text
    assert "| 210 (**0.90**; **0.82**) |" in text  # the same cache in bf16
    [products] = [panel for panel in PANELS if panel.operator == "gemm"]
    beside = f"**{94 / products.hipkittens_modelled[0]:.2f}**"  # at N=1024
    assert f"| 94 (**0.50**, {beside}) |" in text
    assert "| HipKittens, modelled ±" in text
    assert "| hipBLASLt, published | 168 |" in text
    assert "| 350 (1.50) |" in modelled_report.tables_of([row(packed, 1.5)])
    short = modelled_document.kernels_text(rows)
    assert "| attention d128 causal b1 32/8, paged | 228 / 233 AITER assembly = **0.98** |" in short
    assert "| gemm bf16 | 94 / 189 CK = **0.50** |" in short
    for line, loss in [("paged", 0.98), ("tokens fp8", 0.9)]:
        figures = f"{loss * 233:.0f} / 233 AITER assembly = **{loss:.2f}**"
        assert f"attention d128 causal b1 32/8, {line}, N=1024: {figures};" in short
    assert "32/8, packed, N=" not in short
    assert "| tokens fp8 | tokens | **0.82** to **0.82** |" in short
    assert "| packed | paged | 1.53 to 1.53 |" in short
    assert f"HipKittens' kernels, both modelled: {beside} to {beside}." in short
    assert "All losses: none." in modelled_document.kernels_text([row(packed, 1.5)])


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


PLAN = PublishedSweep.parse(Clock(modelled.ARCH, 2), Launches())


def part(text: str, marks: tuple[str, str]) -> str:
    """The part of a document between two marks."""
    return text.partition(marks[0])[2].partition(marks[1])[0]


def cells_of(text: str) -> dict[str, list[str]]:
    """The cells of every table, by the first cell of their line."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {cells[0]: cells[1:] for cells in lines}


@pytest.mark.parametrize(("chosen", "both"), [("linear", False), ("linear,gemm n1024", True)])
def test_the_command(
    chosen: str, both: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command prints tables on standard output and progress on standard error. `--cases linear`
    changes only the tables of linear layers."""
    monkeypatch.setattr(timers.Clock, "microseconds", lambda *_: 16.0)
    document = tmp_path / "document.md"
    document.write_text(f"{'old tables'.join(MARKS)}{'old layers'.join(LINEAR)}")
    options = ["--cases", chosen, "--out", str(tmp_path), "--into", str(document)]
    result = CliRunner().invoke(app, ["kernels", "--modelled", *options])
    assert result.exit_code == 0, result.output
    written = json.loads((tmp_path / "modelled_linear.json").read_text())
    assert len(written["cases"]) == len(PLAN.cases)
    text = document.read_text()
    lost = [case for case in PLAN.cases if case.stock.microseconds < 16]
    assert part(text, LINEAR).count(": 16 / ") == len(lost) > 0
    assert result.stdout.count(" | 16 (") == len(PLAN.cases)
    assert "old layers" not in text
    assert ("old tables" in text) is not both
    assert bool(re.search(r"\| gemm bf16 \| \d+ / 189 CK = \d\.\d\d \|", text)) is both
    assert ("| hipBLASLt, published | 168 |" in result.stdout) is both
    assert ("1/1 gemm bf16 n1024: " in result.stderr) is both
    assert "1/1" not in result.stdout
    assert (tmp_path / "modelled.json").exists() is both
    assert f"{len(PLAN.cases)}/{len(PLAN.cases)}" in result.stderr


def test_a_document_without_a_place_for_tables(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text(MARKS[0])
    with pytest.raises(document_writer.DocumentError, match="end of modelled kernels"):
        document_writer.put_into(document, MARKS, "tables")


def test_the_documented_figures_are_the_model_s() -> None:
    lines = {modelled_document.line_of(row(case, 1)) for case in cases(KERNELS)}
    assert lines >= set(LINES)
    random = draw("documented")
    check([random.choice(cases(KERNELS)), random.choice(shown())], [random.choice(PLAN.cases)])


def shown() -> list[ModelledCase]:
    """Cases whose rate stands in the document."""
    return [
        case
        for case in cases(KERNELS)
        if case.size in SIZES and modelled_document.line_of(row(case, 1)) in LINES
    ]


def check(chosen: Sequence[ModelledCase], linear: Sequence[compare.PublishedCase]) -> None:
    """Compares the document with some of the model's figures: cells, losses and ranges."""
    text = part(DOCUMENT.read_text(), MARKS)
    table, losses = cells_of(text), text.partition("All losses: ")[2].partition("\n")[0]
    for found in modelled.run(chosen, 2, lambda line: None):
        name, cell = modelled_document.line_of(found), modelled_document.cell(found)
        said = f"{found.case.name}: run make modelled"
        assert (f"{name}, N={found.case.size}: {cell}" in losses) == (found.ratio < 1), said
        if found.case in shown():
            assert table[name][SIZES.index(found.case.size)] == cell, said
    text = part(DOCUMENT.read_text(), LINEAR)
    for each in PublishedSweep(list(linear), PLAN.timer).run(lambda line: None):
        ratio, said = each.ratios["HK/stock"], f"{each.case}: run make modelled"
        group = f"| {each.case.layer.format} | {each.case.stock.source} | "
        (line,) = [line for line in text.splitlines() if line.startswith(group)]
        least, _, most = (float(cell.strip("*")) for cell in line.split(" | ")[3:6])
        assert least - 0.005 <= ratio <= most + 0.005, said
        assert (modelled_document.loss(each) in line) == (ratio < 1), said


@pytest.mark.slow
def test_all_documented_figures_are_the_model_s() -> None:
    text = DOCUMENT.read_text()
    rows = list(modelled.run(cases(KERNELS), 2, lambda line: None))
    assert part(text, MARKS).strip() == modelled_document.kernels_text(rows)
    linear = list(PLAN.run(lambda line: None))
    assert part(text, LINEAR).strip() == modelled_document.linear_text(linear)
