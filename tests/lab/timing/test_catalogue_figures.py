"""The catalogue's modelled figures are what the model says today."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hk_backend.kernels.catalogue import CODE_OBJECTS, arches, catalogue
from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.figures import ModelledLaunch
from hk_backend.lab.timing import catalogue_figures
from hk_backend.lab.timing.calibration import error_of
from hk_backend.lab.timing.standard import shapes_of
from tests.seed import draw

KERNELS = [entry for arch in arches() for entry in catalogue(arch).kernels]
REMEDY = "run make modelled"


def check(entry: KernelEntry, found: catalogue_figures.Figures) -> None:
    assert list(entry.modelled) == list(shapes_of(entry)), REMEDY
    for name, now in found.items():
        kept = entry.modelled[name]
        assert kept.tflops == pytest.approx(now.tflops, rel=1e-3), f"{entry.name}: {REMEDY}"
        assert (kept.terabytes is None) == (kept.tflops > 0)
        assert kept.terabytes == (now.terabytes and pytest.approx(now.terabytes, abs=0.01)), REMEDY
        assert kept.busiest_share == pytest.approx(now.busiest_share, abs=2e-3)
        assert (kept.busiest, kept.error_rms) == (now.busiest, error_of(entry.operator))


def test_one_kernel_modelled_again() -> None:
    entry = draw("modelled").choice(KERNELS)
    check(entry, catalogue_figures.figures(entry))


@pytest.mark.slow
def test_every_kernel_modelled_again() -> None:
    for entry, found in catalogue_figures.of_all(KERNELS, 2):
        check(entry, found)


def test_an_index_keeps_everything_else(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(CODE_OBJECTS / "gfx950", tmp_path / "gfx950"))
    before = json.loads((folder / "gemm.json").read_text())
    launch = ModelledLaunch(1.5, "matrix", 0.25, None)
    figures = {entry.name: {"a shape": launch} for entry in catalogue("gfx950").kernels}
    catalogue_figures.write(tmp_path, "gfx950", figures)
    after = json.loads((folder / "gemm.json").read_text())
    for kernel in before["kernels"]:
        kernel["modelled"] = {
            "a shape": {
                "tflops": 1.5,
                "busiest": "matrix",
                "busiest_share": 0.25,
                "error_rms": None,
            }
        }
    assert after == before
    for entry in catalogue("gfx950", tmp_path).kernels:
        assert entry.modelled == {"a shape": launch}
