"""`hk-backend time --measure` on the emulated device, whatever its clocks are; and its file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from hk_backend.bench.gpu import measure
from hk_backend.cli.app import app
from hk_backend.config import get_config
from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip import emulated
from hk_backend.kernels import catalogue
from hk_backend.kernels.catalogue import MEASURING
from hk_backend.timing.measured import PARAMETERS, Measured
from hk_backend.timing.rows import Found, rows

CHAIN = 4 + 24 / 16  # clocks of a repeat beside the load: the issue of the wait, the loop's share
LOOP = 3  # instructions around a step


@pytest.fixture(autouse=True)
def reset() -> Iterator[None]:
    """The emulated device of other tests is not the one that was reset here."""
    get_config.cache_clear()
    yield
    get_config.cache_clear()
    emulated.EmulatedLibrary(emulated.LIBRARY).reset("gfx950")


@pytest.fixture
def gfx950(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulated device, with a few of the rows."""
    few = [row for row in rows() if row.name in ("s_nop_0", "s_nop_1", "hbm_read", "launch")]
    monkeypatch.setattr(measure, "rows", lambda: few)
    monkeypatch.setenv("HK_DEVICE", "emulated:gfx950")


def run(*options: str) -> Result:
    return CliRunner().invoke(app, ["time", *options])


def measured_file(folder: Path) -> Path:
    """Of a GPU whose LDS takes 77 clocks and whose device clock is 2.2 GHz."""
    path = folder / "measured.json"

    def found(clocks: float) -> Found:
        return Found({0: clocks}, 1.0, 2.2, 0.0, 0.0, 0.0, 1)

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
    """And what people are told. It is refused as an input, since the device is emulated."""
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
    """What a refusal says, without its frame."""
    return " ".join(result.stderr.replace("│", " ").split())


def test_what_was_measured_stands_in_the_model_s_place(tmp_path: Path) -> None:
    path = str(measured_file(tmp_path))
    listed = {row["name"]: row for row in json.loads(run("--parameters", "--json").stdout)}
    now = json.loads(run("--parameters", "--measured", path, "--json").stdout)
    changed = {row["name"]: row["value"] for row in now if row != listed[row["name"]]}
    assert changed == pytest.approx({"clock": 2.2, "issue": 4, "lds_latency": 77})
    assert {row["certainty"] for row in now if row["name"] in changed} == {"measured"}


def test_what_does_not_work(tmp_path: Path, gfx950: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths that are not there, a processor."""
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
    missing = [row for row in rows() if row.name not in found.rows]
    assert set(found.parameters) < set(PARAMETERS)  # clocks that count instructions, or 0 of them
    if arch == "gfx950":
        assert missing == []
    else:
        of_gfx950 = catalogue("gfx950", MEASURING).kernels
        only = {e.facts["run"] for e in of_gfx950 if e.path.stem == "measure_gfx950"}
        assert {row.kernel for row in missing} == only


def test_what_a_row_finds_is_the_difference_of_its_launches() -> None:
    """Here in instructions: 64 and the loop's in a step, of one wave or of each."""
    gpu = measure.emulated("gfx950")
    waves = {"s_nop_0": [0], "fma_f32_shared": [0, 4], "barrier_2": [0, 1], "clock": [*range(8)]}
    found = measure.measure(gpu, [row for row in rows() if row.name in waves])
    for name, each in waves.items():
        assert found.rows[name].clocks == dict.fromkeys(each, (64 + LOOP) / 64)
    assert found.rows["clock"].workgroups == gpu.compute_units
    assert 64 + LOOP <= found.rows["s_nop_0"].alone < 2 * (64 + LOOP)


@pytest.mark.parametrize(
    ("device", "why"),
    [
        ("cpu", "HK_DEVICE=cpu: only a GPU"),
        ("auto", "HIP"),
    ],
)
def test_without_a_gpu(device: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HK_DEVICE", device)
    with pytest.raises(DeviceError, match=why):
        measure.gpu()
