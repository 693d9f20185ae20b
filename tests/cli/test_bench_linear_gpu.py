"""`hk-backend bench linear --device`: every published figure beside HK's, losses beside wins."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from hk_backend.bench.gemm import compare, gpu, timers
from hk_backend.bench.gemm.compare import OnDevice, Row, summary
from hk_backend.bench.gemm.published import STOCK, known
from hk_backend.bench.gemm.timers import Clock, Problem
from hk_backend.bench.tables import markdown
from hk_backend.cli.app import app
from hk_backend.devices.base import DeviceError
from hk_backend.kernels.catalogue import catalogue
from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.gemm_choice import planned
from hk_backend.kernels.gemm_formats import LAYERS, family
from hk_backend.measurements.launches import Launches
from hk_backend.timing import calibration
from tests.measurements.launches import UNITS, launch, timed

KERNELS = catalogue("gfx950")
SMALL = ["--layers", "1024x1024", "--formats", "bf16"]


def run(*options: str, device: str = "emulated:gfx950") -> Result:
    return CliRunner().invoke(app, ["bench", "linear", "--device", device, *options])


def cases(*options: str) -> list[dict[str, Any]]:
    result = run("--json", *options)
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = json.loads(result.stdout)
    assert data["environment"]["figures"] == calibration.statement("gemm")
    found: list[dict[str, Any]] = data["cases"]
    return found


@pytest.fixture
def instant(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock by which everything takes 100 microseconds."""
    monkeypatch.setattr(timers.Clock, "microseconds", lambda *_: 100.0)


@pytest.mark.usefixtures("instant")
def test_every_published_figure_of_our_formats_is_there() -> None:
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


def test_a_figure_is_the_clock_s() -> None:
    (row,) = cases(*SMALL)
    entry = KERNELS.kernel(row["kernel"])
    problem = Problem(LAYERS["bf16"], 1024, 1024, 1024)
    assert row["microseconds"] == Clock("gfx950", 1).microseconds(entry, row["splits"], problem)
    assert (row["source"], row["model_error_rms"]) == ("modelled", calibration.error_of("gemm"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--layers", "smollm2-o"], "--layers: 'smollm2-o' is not one of llama70b-qkv"),
        (["--tokens", "3"], "--tokens: '3' is not one of 1, 16, "),
        (["--formats", "mxfp4"], "--formats: 'mxfp4' is not one of fp8_channel"),
        (["--isa", "avx2"], "--isa: not with --device emulated:gfx950"),
        (["--rounds", "3"], "--rounds: not with --device emulated:gfx950"),
        (["--weight-only"], "--weight-only: not with --device emulated:gfx950"),
    ],
)
def test_errors_name_what_is_wrong(
    options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    result = run(*options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_on_a_gpu_the_figures_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    class Measured(Clock):
        source, device, at_once = "measured", "MI355X", 1

        def __init__(self) -> None:
            super().__init__("gfx950", 1)

        def microseconds(self, entry: KernelEntry, splits: int, problem: Problem) -> float:
            return 12.25

    monkeypatch.setattr(gpu, "this_gpu", Measured)
    result = run(*SMALL, device="hip")
    assert result.exit_code == 0, result.output
    assert "device       MI355X" in result.stdout
    assert "figures      measured" in result.stdout
    assert "±" not in result.stdout
    (row,) = json.loads(run(*SMALL, "--json", device="hip").stdout)["cases"]
    assert (row["microseconds"], row["source"], row["model_error_rms"]) == (12.25, "measured", None)


def test_a_launch_that_fails_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> float:
        raise RuntimeError("a buffer's end")

    monkeypatch.setattr(timers.Clock, "microseconds", fail)
    result = run(*SMALL)
    assert result.exit_code == 1
    assert "a buffer's end" in result.stdout
    assert "0 wins, 0 losses, 1 failed" in result.stdout
    (row,) = json.loads(run(*SMALL, "--json").stdout)["cases"]
    assert row["error"] == "a buffer's end"
    assert "microseconds" not in row


@pytest.mark.usefixtures("instant")
def test_a_timed_launch_is_what_is_timed() -> None:
    last = launch(family(KERNELS, LAYERS["bf16"]), 1024, 1024, 1024)
    with timed(last):
        (row,) = cases(*SMALL)
    assert (row["kernel"], row["splits"]) == (last.kernel, last.splits)
    assert row["microseconds"] == 100.0, "timed, not read"


def test_losses_stand_beside_wins() -> None:
    plan = OnDevice.parse(Clock("gfx950", 1), Launches(), formats="bf16")
    ratios = (2.0, 1.01, 0.99, 0.5)
    rows = [
        Row(case, "modelled", "a_kernel", 1, case.stock.microseconds / ratio)
        for case, ratio in zip(plan.cases, ratios, strict=False)
    ]
    assert summary(rows) == (
        "2 wins, 2 losses, 0 failed; smallest ratio to stock 0.50; 2 within the model's error of 1"
    )
    lines = markdown(compare.HEADINGS, map(compare.cells, rows)).splitlines()[2:]
    shown = [line.split(" | ")[compare.HEADINGS.index("HK/stock")] for line in lines]
    assert shown == ["2.00", "1.01", "0.99", "0.50"]
    assert all("modelled ±5%" in line for line in lines)


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(device="hip")
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert "HIP" in line

    def none() -> None:
        raise DeviceError("no GPU here")

    monkeypatch.setattr(gpu, "this_gpu", none)
    result = run(device="hip")
    assert (result.exit_code, result.stderr) == (1, "no GPU here\n")
