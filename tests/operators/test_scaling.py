"""A new operator is a few files in rooms of its own package, and everything else finds it.

The package `scaling` has one operator, computed in torch on a CPU and by a kernel on gfx950. No
source of the project names it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from hk_backend import devices, operators
from hk_backend.devices.base import Device
from hk_backend.devices.hip.emulated import LIBRARY, EmulatedLibrary, make_device
from hk_backend.kernels import Catalogue, KernelEntry, catalogue
from hk_backend.lab.commands import bench
from hk_backend.lab.timing import calibration, catalogue_figures, report, shapes
from hk_backend.lab.toolchain import build, compiler
from hk_backend.ops import supports
from hk_backend.ops.registry import OPERATORS, listing
from hk_backend.routing.metrics import count
from hk_backend.routing.routes import routes
from tests.devices.hip.device import SynchronisesInChecks, current_streams
from tests.operators.scaling.ops.scale import ScaleRequest, scale

PACKAGE = "tests.operators.scaling"
SCALE = OPERATORS.pop("scale")
"""The declaration, which the import above has made for all tests of this process."""
FOLDER = Path(__file__).with_name("scaling")
MOST_FILES = 7


@pytest.fixture(scope="module", autouse=True)
def found() -> Iterator[None]:
    OPERATORS["scale"] = SCALE
    with operators.also_in(PACKAGE):
        yield
    del OPERATORS["scale"]


@pytest.fixture(scope="module")
def kernels(found: None, tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    """The package's kernel, compiled from its source beside the project's headers."""
    root = tmp_path_factory.mktemp("scaling")
    (root / "csrc").symlink_to(build.ROOT / "csrc")
    (root / "kernels").symlink_to(FOLDER / "kernels")
    folder = root / "codeobjects"
    build.build("gfx950", folder / "gfx950", compiler.find(), root=root, folder=Path("kernels"))
    return catalogue("gfx950", folder)


@pytest.fixture(scope="module")
def kernel(kernels: Catalogue) -> KernelEntry:
    (found,) = kernels.families["scale"]
    return found


@pytest.fixture
def library() -> Iterator[EmulatedLibrary]:
    """The emulator's HIP library, restarted."""
    found = EmulatedLibrary(LIBRARY)
    found.reset("gfx950", 2)
    yield found
    found.reset("gfx950")


@pytest.fixture(params=["cpu", "gfx950"])
def device(request: pytest.FixtureRequest, kernels: Catalogue, library: EmulatedLibrary) -> Device:
    if request.param == "cpu":
        return devices.device_for("cpu")
    return make_device(library, kernels)


def test_the_package_is_small_and_nothing_else_knows_it() -> None:
    files = [path for path in FOLDER.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert len(files) <= MOST_FILES
    for room in ("hk_backend", "csrc"):
        sources = [*(build.ROOT / room).rglob("*.py"), *(build.ROOT / room).rglob("*.[ch]pp")]
        assert sources
        assert not [path for path in sources if PACKAGE in path.read_text()]


@pytest.mark.parametrize("shape", [(1, 1), (3, 257), (0, 8)])
def test_every_device_computes_it(shape: tuple[int, int], device: Device) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    with devices.always(device):
        torch.testing.assert_close(scale(x, 0.3), x * 0.3)


def test_bad_input(device: Device) -> None:
    with devices.always(device), pytest.raises(ValueError, match=r"x: torch\.float64 .*float32"):
        scale(torch.ones(2, 2, dtype=torch.float64), 2.0)


def test_torch_has_it_registered() -> None:
    compiled = torch.compile(scale, fullgraph=True, backend="aot_eager")
    x = torch.ones(2, 3)
    assert torch.equal(compiled(x, 2.0), 2 * x)
    out = torch.empty_like(x)
    torch.ops.hk_backend.scale(x, out, 3.0)
    assert torch.equal(out, 3 * x)


def test_verdicts(device: Device) -> None:
    request = ScaleRequest("cpu", torch.float32)
    with devices.always(device):
        assert supports(request)
        assert supports(replace(request, dtype=torch.int8)).why == "x in torch.int8"
        assert "tensors on cuda" in supports(replace(request, device_type="cuda")).why


def test_counters() -> None:
    count("scale", "served", 5)
    assert routes.counters("scale").served.tokens == 5


def test_the_self_check(
    kernels: Catalogue,
    kernel: KernelEntry,
    library: EmulatedLibrary,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    current_streams(library, monkeypatch)
    request = ScaleRequest("cpu", torch.float32)
    on_gpu = SynchronisesInChecks(library, kernels)
    assert on_gpu.verdict(request)
    assert kernel.symbol in library.report()["kernels"]

    class Wrong(SynchronisesInChecks):
        def launch(self, call, index) -> None:  # type: ignore[no-untyped-def]
            super().launch(replace(call, numbers={**call.numbers, "factor": 0.31}), index)

    assert "scale_f32 failed its self-check" in Wrong(library, kernels).verdict(request).why


def test_the_clock(kernel: KernelEntry) -> None:
    timed = report.collect(shapes.parse(kernel, "rows=8,columns=1024"), {}, sensitivity=False)
    assert timed.as_json()["kernel"] == kernel.name
    assert "it is an example" in calibration.statement("scale")
    (figures,) = catalogue_figures.figures(kernel).values()
    assert figures.terabytes


def test_the_analysis_ran_it(kernel: KernelEntry) -> None:
    assert kernel.spills == 0
    assert kernel.figures.waves_per_simd == 8


def test_the_bench() -> None:
    app = typer.Typer()
    module = operators.part(bench.BENCHES, "scale")
    assert module is not None
    assert "scale" in operators.names(bench.BENCHES)
    app.command()(module.command)
    result = CliRunner().invoke(app, ["--rounds", "1", "--json"])
    assert result.exit_code == 0, result.output
    (case,) = json.loads(result.stdout)["cases"]
    assert case["hk/stock"] > 0


def test_the_documents_list_it() -> None:
    (line,) = (line for line in listing().splitlines() if "`scale`" in line)
    assert line == "| `scale` | Multiplies a float32 matrix by a number. | cpu, hip |"
