"""`hk-backend time gemm --explain`: the choice, its rivals, and the bound."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from hk_backend.bench.gemm.explain import RIVALS
from hk_backend.bench.gemm.timers import Clock, Problem
from hk_backend.cli.app import app
from hk_backend.kernels.catalogue import catalogue
from hk_backend.kernels.gemm_choice import planned
from hk_backend.kernels.gemm_formats import LAYERS, family
from hk_backend.kernels.gemm_plan import candidates
from hk_backend.timing import calibration
from tests.measurements.launches import UNITS, launch, timed

KERNELS = catalogue("gfx950")
M, N, K = 256, 10240, 8192
SHAPE = f"m={M},n={N},k={K}"
FORMAT = "fp8_channel"
FAMILY = family(KERNELS, LAYERS[FORMAT])


def run(*options: str, kernel: str = "gemm", shape: str = SHAPE, format: str = FORMAT) -> Result:
    named = ["time", kernel, "--explain", "--shape", shape, "--format", format]
    return CliRunner().invoke(app, [*named, *options])


def explained(*options: str, shape: str = SHAPE, format: str = FORMAT) -> dict[str, Any]:
    result = run("--json", *options, shape=shape, format=format)
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = json.loads(result.stdout)
    return data


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
        assert each["workgroups"] == entry.grid(m=M, n=N, splits=each["splits"])[0]
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
    ("format", "peak", "weight_bytes"), [("bf16", 2.5166e15, 2), ("fp8_channel", 5.0332e15, 1)]
)
def test_the_bound(format: str, peak: float, weight_bytes: int) -> None:
    """MI355X: 256 CUs at 2.4 GHz with 4096 FLOPs a clock in 16 bits, twice that in 8."""
    bound = explained(format=format)["bound"]
    assert bound["matrix"] == pytest.approx(2e6 * M * N * K / peak, rel=1e-4)
    moved = weight_bytes * (M * K + N * K) + 2 * M * N
    assert 6.0e6 <= moved / bound["memory"] <= 8.0e6, "bytes per microsecond of its HBM"
    assert bound["by"] == max(("matrix", "memory"), key=lambda name: bound[name])


def test_a_timed_launch_is_the_choice() -> None:
    """It is first of the rivals whatever the planner thinks of it."""
    last = launch(FAMILY, M, N, K, microseconds=33.5, source="measured")
    with timed(last):
        data = explained()
        text = run().stdout
    assert (data["kernel"], data["microseconds"], data["source"]) == (
        last.kernel,
        33.5,
        "measured",
    )
    assert data["rivals"][0]["kernel"] == last.kernel
    assert data["rivals"][0]["planned"] > data["rivals"][1]["planned"]
    assert "33.5 us (measured)" in text
    assert "modelled, error" not in text


def test_a_report_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    data, result = explained(), run()
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= 80
    said = re.sub(r"\s+", " ", result.stdout)
    assert f"{FORMAT} {N}x{K}, M={M} on gfx950" in said
    assert f"{data['kernel']}, splits {data['splits']}: {data['microseconds']:.4g} us" in said
    assert calibration.statement("gemm") in said
    for each in data["rivals"]:
        row = (each["kernel"], each["tile"], each["splits"], each["workgroups"], each["rounds"])
        assert f"{' '.join(map(str, row))} {each['planned']:.4g}" in said


WITHOUT = [name for name in LAYERS if not family(KERNELS, LAYERS[name])]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "attention_prefill"}, "KERNEL: 'attention_prefill' with --explain; valid: "),
        ({"kernel": ""}, "KERNEL: '' with --explain; valid: gemm"),
        ({"shape": "m=1,n=2"}, "--shape: k is missing; valid: k=NUMBER"),
        ({"shape": "tokens=1"}, "--shape: 'tokens=1' has no name of a size; valid: m, n, k"),
        ({"format": "int4"}, "--format: 'int4' is not one of bf16, "),
        *(({"format": each}, f"--format: gfx950 has no kernels for {each}") for each in WITHOUT),
    ],
)
def test_errors_name_what_is_wrong(
    options: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    result = run(**options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
