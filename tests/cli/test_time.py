"""`hk-backend time`: one JSON document, tables that fit, and errors that name the fault.
`--measure` on the emulated device: its clocks, and the file that it writes."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from hk_backend.cli.app import app
from hk_backend.config import get_config
from hk_backend.devices.hip import emulated
from hk_backend.kernels import catalogue
from hk_backend.kernels.catalogue import MEASURING
from hk_backend.lab.bench.gpu import measure
from hk_backend.lab.timing import calibration
from hk_backend.lab.timing.measured import PARAMETERS, Measured
from hk_backend.lab.timing.microbenchmarks import MicrobenchmarkResult, microbenchmarks
from tests.processes import python

KERNEL = "attention_prefill_bf16_d64_packed"
SHAPE = "heads=8/1,tokens=512,causal"
SMALL = "heads=2/1,tokens=256,causal"
"""A small launch: the tests of sensitivity replay it with many parameters."""


def run(*options: str) -> Result:
    return CliRunner().invoke(app, ["time", *options])


@functools.cache
def modelled(*options: str, kernel: str = KERNEL, shape: str = SHAPE) -> dict[str, Any]:
    result = run(kernel, "--shape", shape, "--json", *options)
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = json.loads(result.stdout)
    return data


def test_one_json_document() -> None:
    data = modelled("--no-sensitivity")
    assert data["kernel"] == KERNEL
    assert data["shape"] == "1 request, heads 8/1, 512 tokens, causal"
    assert data["modelled"] is True
    assert data["error_rms"] == calibration.error_of("attention_prefill")
    flops = 4 * 8 * 64 * 512 * 512 / 2
    assert data["tflops"] == pytest.approx(flops / data["microseconds"] / 1e6)
    assert data["gigabytes_per_second"] > 0
    assert data["sensitivity"] is None
    limit = data["limits"]["matrix_tflops_at_modelled_clock"]
    assert data["shares"]["matrix_at_modelled_clock"] == pytest.approx(data["tflops"] / limit)


def test_set_changes_the_figure() -> None:
    base = modelled("--no-sensitivity")
    slow = modelled("--no-sensitivity", "--set", "clock=1.2", "--set", "launch=50")
    assert slow["set"] == {"clock": 1.2, "launch": 50}
    assert slow["microseconds"] > base["microseconds"] + 40
    assert slow["limits"]["matrix_tflops"] == pytest.approx(base["limits"]["matrix_tflops"] / 2)


def test_a_report_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report fits a terminal, and agrees with the JSON."""
    monkeypatch.setenv("COLUMNS", "80")
    kernel, shape = "gemm_bf16_256x256", "m=300,n=512,k=128"
    result = run(kernel, "--shape", shape)
    assert result.exit_code == 0, result.output
    assert "…" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    data = modelled(kernel=kernel, shape=shape)
    said = re.sub(r"\s+", " ", result.stdout)
    assert f"{data['microseconds']:,.4g} us" in said
    assert f"{data['tflops']:,.4g} TFLOP/s" in said
    assert "modelled, error 5% rms on published figures" in said
    assert "bound by" in said
    for name, share in data["units"].items():
        assert f"{name} {share:.1%}" in said
    top = data["workgroup"]["lines"][0]
    assert f"{top['line']} {top['clocks']:,.0f}" in said
    assert data["sensitivity"]
    for effect in data["sensitivity"]:
        assert effect["certainty"] in {"guessed", "calibrated"}
        assert effect["low"] <= effect["value"] <= effect["high"]
        assert max(abs(effect[f"time_at_{end}"] - 1) for end in ("low", "high")) >= 0.005
        assert f"{effect['parameter']} {effect['value']:g} " in said
    assert f"{data['workgroup']['phases']['before']:,.0f} clocks before its loop" in said


def test_a_kernel_without_matrix_instructions_has_no_flops() -> None:
    result = run("quantize_fp8_token_bf16", "--shape", "m=300,k=512", "--no-sensitivity")
    assert result.exit_code == 0, result.output
    data = modelled("--no-sensitivity", kernel="quantize_fp8_token_bf16", shape="m=300,k=512")
    assert f"us, {data['gigabytes_per_second']:,.4g} GB/s\n" in result.stdout
    assert "FLOP" not in result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "Invalid value for KERNEL: it is missing"),
        ([KERNEL], "Invalid value for --shape: it is missing"),
        (["attention"], "KERNEL: no kernel 'attention' for gfx950; of "),
        (["attention", "--shape", SHAPE], "KERNEL: no kernel 'attention' for gfx950; of "),
        ([KERNEL, "--shape", "tokens=5"], "--shape: heads is missing; valid: heads as in"),
        ([KERNEL, "--shape", "heads=8/1,tokens=x"], "--shape: tokens=x: 'x'; valid: 1 to 131072"),
        ([KERNEL, "--shape", SHAPE, "--set", "l2"], "--set: 'l2': valid: NAME=NUMBER"),
        ([KERNEL, "--shape", SHAPE, "--set", "l2=a"], "--set: 'l2=a': valid: NAME=NUMBER"),
        ([KERNEL, "--shape", SHAPE, "--set", "l3=1"], "timing parameter 'l3'; valid: compute_u"),
        ([KERNEL, "--shape", SHAPE, "--set", "xcds=0.5"], "xcds = 0.5; valid: a whole number, 1"),
        ([KERNEL, "--shape", SHAPE, "--set", "clock=inf"], "clock = inf; valid: more than 0, up"),
        ([KERNEL, "--shape", SHAPE, "--set", "registers=8"], "--set: no CU holds a workgroup of 4"),
        (["--parameters", "--arch", "gfx90a"], "--arch: arch 'gfx90a'; valid: "),
    ],
)
def test_errors_name_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    result = run(*options)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr


def test_parameters_are_listed_with_range_certainty_and_source() -> None:
    rows = json.loads(run("--parameters", "--json", "--arch", "gfx942").stdout)
    text = run("--parameters", "--arch", "gfx942").stdout
    assert {"compute_units", "clock", "hbm", "lds_latency"} <= {row["name"] for row in rows}
    for row in rows:
        assert row["certainty"] in {"published", "calibrated", "guessed"}
        assert row["low"] <= row["value"] <= row["high"]
        assert f"{row['name']:23}{row['value']:g} {row['unit']}" in text
        assert f"{row['what']} ({row['source']})" in text


def test_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture is SVG, PNG, or both. An unwritable file and a missing matplotlib are each reported
    in one line."""
    pytest.importorskip("matplotlib")

    def drawn(name: str) -> Result:
        picture = str(tmp_path / name)
        return run(KERNEL, "--shape", SHAPE, "--no-sensitivity", "--picture", picture)

    both = [f"picture: {tmp_path / name}" for name in ("cu.png", "cu.svg")]
    assert drawn("cu").stdout.splitlines()[-2:] == both
    assert (tmp_path / "cu.svg").read_text().startswith("<?xml")
    monkeypatch.setenv("COLUMNS", "400")
    no_folder = drawn("none/cu.png")
    assert no_folder.exit_code == 2
    assert "is not a folder" in no_folder.stderr
    (tmp_path / "folder.png").mkdir()
    for why in ("Is a directory", "--picture: import of matplotlib halted"):
        refused = drawn("folder.png")
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert why in refused.stderr
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        monkeypatch.delitem(sys.modules, "hk_backend.lab.timing.picture", raising=False)
    assert "-m pip install 'matplotlib" in refused.stderr


def test_a_timeline_needs_no_other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setenv("COLUMNS", "400")
    options = (KERNEL, "--shape", SHAPE, "--no-sensitivity", "--timeline")
    file = tmp_path / "cu.json"
    assert run(*options, str(file)).stdout.splitlines()[-1] == f"timeline: {file}"
    assert json.loads(file.read_text())["otherData"]["kernel"] == KERNEL
    assert json.loads(run(*options, str(file), "--json").stdout)["timeline"] == str(file)
    assert "is not a folder" in run(*options, str(tmp_path / "none/cu.json")).stderr


CHAIN = 4 + 24 / 16  # clocks of a repeat beside the load: the wait's issue, its share of the loop
LOOP = 3  # instructions around a step


@pytest.fixture(autouse=True)
def reset() -> Iterator[None]:
    """Resets the emulated device and the configuration, which other tests share."""
    get_config.cache_clear()
    yield
    get_config.cache_clear()
    emulated.EmulatedLibrary(emulated.LIBRARY).reset("gfx950")


@pytest.fixture
def gfx950(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulated device gfx950, with a few of the rows to measure."""
    few = [
        row for row in microbenchmarks() if row.name in ("s_nop_0", "s_nop_1", "hbm_read", "launch")
    ]
    monkeypatch.setattr(measure, "microbenchmarks", lambda: few)
    monkeypatch.setenv("HK_DEVICE", "emulated:gfx950")


def measured_file(folder: Path) -> Path:
    """A file of measurements: the LDS takes 77 clocks, and the device's clock is 2.2 GHz."""
    path = folder / "measured.json"

    def found(clocks: float) -> MicrobenchmarkResult:
        return MicrobenchmarkResult({0: clocks}, 1.0, 2.2, 0.0, 0.0, 0.0, 1)

    slot = 4 + 24 / 64
    found_rows = {
        "s_nop_0": found(slot),
        "s_nop_1": found(slot + 4),
        "clock": found(64),
        "lds_latency": found(77 + CHAIN),
    }
    Measured("gfx950", "a GPU", False, found_rows).save(path)
    return path


@pytest.mark.usefixtures("gfx950")
def test_the_file_and_the_document_are_the_same(tmp_path: Path) -> None:
    """The printed text agrees, too. The file is refused as an input, since the device is
    emulated."""
    path = tmp_path / "measured.json"
    result = run("--measure", str(path), "--json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data == json.loads(path.read_text())
    assert (data["device"], data["emulated"]) == ("emulated:gfx950", True)
    assert set(data["rows"]) == {"s_nop_0", "s_nop_1", "hbm_read", "launch"}
    assert data["parameters"]["hbm"]["certainty"] == "measured"
    shown = run("--measure", str(path)).stdout
    assert "4 micro-kernels" in shown
    assert "clocks count instructions" in shown
    refused = run("--parameters", "--measured", str(path))
    assert refused.exit_code == 2
    assert "is of an emulated device" in in_one_line(refused)


def in_one_line(result: Result) -> str:
    """A refusal's text in one line, without the frame around it."""
    return " ".join(result.stderr.replace("│", " ").split())


def test_what_was_measured_stands_in_the_model_s_place(tmp_path: Path) -> None:
    path = str(measured_file(tmp_path))
    listed = {row["name"]: row for row in json.loads(run("--parameters", "--json").stdout)}
    now = json.loads(run("--parameters", "--measured", path, "--json").stdout)
    changed = {row["name"]: row["value"] for row in now if row != listed[row["name"]]}
    assert changed == pytest.approx({"clock": 2.2, "issue": 4, "lds_latency": 77})
    assert {row["certainty"] for row in now if row["name"] in changed} == {"measured"}


def test_what_does_not_work(tmp_path: Path, gfx950: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths that do not exist and a processor are refused."""
    for options, message in (
        (("--measure", "/nowhere/file.json"), "there is no folder /nowhere"),
        (("--parameters", "--measured", "/nowhere/file.json"), "No such file"),
    ):
        result = run(*options)
        assert result.exit_code == 2
        assert message in in_one_line(result)
    monkeypatch.setenv("HK_DEVICE", "cpu")
    get_config.cache_clear()
    result = run("--measure", str(tmp_path / "measured.json"))
    assert result.exit_code == 1
    assert "HK_DEVICE=cpu: only a GPU, or an emulated one, is measured" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_every_row_that_the_arch_has_a_kernel_for(
    arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HK_DEVICE", f"emulated:{arch}")
    said: list[str] = []
    found = measure.measure(measure.gpu(), say=said.append)
    assert said == list(found.rows)
    assert (found.arch, found.device, found.emulated) == (arch, f"emulated:{arch}", True)
    missing = [row for row in microbenchmarks() if row.name not in found.rows]
    assert set(found.parameters) < set(PARAMETERS)  # clocks that count instructions, or none
    if arch == "gfx950":
        assert missing == []
    else:
        of_gfx950 = catalogue("gfx950", MEASURING).kernels
        only = {e.facts["run"] for e in of_gfx950 if e.path.stem == "measure_gfx950"}
        assert {row.kernel for row in missing} == only


def test_what_a_row_finds_is_the_difference_of_its_launches() -> None:
    """The emulated device's clock counts instructions. A step has 64 and the loop's own, by one
    wave or all waves."""
    gpu = measure.emulated("gfx950")
    waves = {"s_nop_0": [0], "fma_f32_shared": [0, 4], "barrier_2": [0, 1], "clock": [*range(8)]}
    found = measure.measure(gpu, [row for row in microbenchmarks() if row.name in waves])
    for name, each in waves.items():
        assert found.rows[name].clocks == dict.fromkeys(each, (64 + LOOP) / 64)
    assert found.rows["clock"].workgroups == gpu.compute_units
    assert 64 + LOOP <= found.rows["s_nop_0"].alone < 2 * (64 + LOOP)


def test_a_user_s_environment_needs_no_package_that_builds_kernels() -> None:
    code = (
        "import sys; sys.modules.update(elftools=None, msgpack=None)\n"
        "import hk_backend.cli.app, hk_backend.lab.timing.shapes\n"
        "import hk_backend.lab.bench.gemm.compare, hk_backend.lab.bench.gpu.measure\n"
    )
    python("-c", code, check=True)
