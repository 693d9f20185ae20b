"""The catalogue's modelled figures are those of the present timing model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hk_backend.kernels.catalogue import arches, catalogue
from hk_backend.kernels.entry import KernelEntry
from hk_backend.lab.timing import catalogue_figures
from hk_backend.lab.timing.calibration import error_of
from hk_backend.lab.timing.family import family_of
from hk_backend.lab.toolchain import modelled
from hk_backend.lab.toolchain.modelled import (
    ModelledFigures,
    ModelledLaunch,
    modelled_figures,
    write_modelled,
)
from tests.seed import draw

KERNELS = [entry for arch in arches() for entry in catalogue(arch).kernels]
REMEDY = "run make modelled"


def check(entry: KernelEntry, found: ModelledFigures) -> None:
    shipped = modelled_figures(entry)
    family = family_of(entry.operator)
    assert family is not None
    assert list(shipped) == list(family.shapes(entry)), REMEDY
    for name, now in found.items():
        kept = shipped[name]
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


def test_figures_hold_for_the_code_that_was_modelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modelled, "MODELLED", tmp_path / "modelled.json")
    one, other = KERNELS[:2]
    launches = {"a shape": ModelledLaunch(0.0, "memory", 0.25, error_of(one.operator), 1.5)}
    assert modelled_figures(one) == {}
    write_modelled({one: launches, other: {}})
    assert (modelled_figures(one), modelled_figures(other)) == (launches, {})
    assert modelled_figures(replace(one, code="another")) == {}
