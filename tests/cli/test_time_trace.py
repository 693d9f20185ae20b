"""`hk-backend time --trace`: errors of a replayed trace, what is extracted, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from hk_backend.cli.app import app
from tests.lab.timing.hardware.made import MEASURED, WARM, made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("traces") / "dispatch", MEASURED)


def run(*options: str | Path) -> Result:
    return CliRunner().invoke(app, ["time", *map(str, options)])


def test_a_trace_and_what_it_measures(folder: Path, tmp_path: Path) -> None:
    """The costs that a trace measures make its replay exact to two clocks in a thousand."""
    file = tmp_path / "measured.json"
    first = document("--trace", folder, "--measure", file)
    [trace] = first["traces"]
    assert trace["waves"] == 4
    assert trace["mean_absolute_end"] > 0.02
    assert first["measured"]["lds_latency"] == MEASURED["lds_latency"]
    unmeasured = {"scalar_latency": MEASURED["scalar_latency"], **WARM}
    settings = [f"--set={name}={value}" for name, value in unmeasured.items()]
    [again] = document("--trace", folder, "--measured", file, *settings)["traces"]
    assert again["mean_absolute_end"] < 2e-3
    assert str(tmp_path) not in file.read_text()


def document(*options: str | Path) -> dict[str, Any]:
    result = run(*options, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_a_table_and_a_picture_for_people(folder: Path, tmp_path: Path) -> None:
    result = run("--trace", folder, "--picture", tmp_path / "cu.svg")
    assert result.exit_code == 0, result.output
    assert "a turn of the loop" in result.output
    assert "mean absolute error of the waves' ends" in result.output
    assert "s_barrier" in (tmp_path / "cu.svg").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--own-data", "l1"), "'l1'; valid: nearest, l2, infinity-cache, hbm"),
        (("--arch", "gfx90a"), "'gfx90a'; valid: gfx942, gfx950"),
        (("--set", "lds_latency=fast"), "NAME=NUMBER"),
        (("--measure", "nowhere/file.json"), "nowhere is not a folder"),
    ],
)
def test_bad_options(folder: Path, options: tuple[str, ...], message: str) -> None:
    result = run("--trace", folder, *options)
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


def test_a_folder_that_is_no_trace(tmp_path: Path) -> None:
    result = run("--trace", tmp_path)
    assert result.exit_code == 1
    assert "code.json: No such file or directory" in " ".join(result.output.split())
