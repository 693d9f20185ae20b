"""The timing model's error is stated for every kernel, and equals that of the compared figures."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from bench_serving.published import PANELS
from hk_backend.kernels.catalogue import CODE_OBJECTS, MEASURING, arches, catalogue
from hk_backend.kernels.entry import KernelEntry
from hk_backend.lab.timing import model
from hk_backend.lab.timing.calibration import error_of, statement
from hk_backend.lab.timing.family import family_of
from hk_backend.lab.timing.launch import trace
from tests.lab.timing import traffic

DOCUMENT = (Path(__file__).parents[3] / "docs" / "timing.md").read_text()
OPERATORS = {
    operator
    for folder in (CODE_OBJECTS, MEASURING)
    for arch in arches(folder)
    for operator in catalogue(arch, folder).families
}


def test_every_kernel_that_ships_has_an_error_or_a_reason() -> None:
    for operator in OPERATORS:
        family = family_of(operator)
        assert family is not None, operator
        assert (family.error is None) == bool(family.uncompared), operator


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_every_figure_says_it(operator: str) -> None:
    error = error_of(operator)
    said = "not compared" if error is None else f"error {error:.0%} rms"
    assert said in statement(operator)


def rms(errors: Iterable[float]) -> float:
    return float(np.sqrt(np.mean(np.square(list(errors)))))


def hipkittens() -> dict[tuple[str, int], float]:
    """Relative errors of HipKittens' attention and GEMM in the model, by panel and size."""
    return {
        (panel.name, size): modelled / published - 1
        for panel in PANELS
        if panel.hipkittens_modelled
        for size, published, modelled in zip(
            panel.shapes, panel.rates["HipKittens"], panel.hipkittens_modelled, strict=True
        )
    }


def test_the_error_is_the_larger_of_figures_that_parameters_were_chosen_on_and_the_others() -> None:
    sizes = {"gemm": (2048, 4096, 8192), "attention": (1024, 2048, 4096, 8192)}
    chosen, others = [], []
    for (panel, size), error in hipkittens().items():
        fitted = "16/16" not in panel and size in sizes[panel.split()[0]]
        (chosen if fitted else others).append(error)
    said = " ".join(DOCUMENT.split())
    assert f"chosen on {len(chosen)} of these" in said
    assert f"Their rms error is {rms(chosen):.1%}." in said
    assert f"The other {len(others)} " in said
    assert f"{rms(others):.1%}, the largest {max(map(abs, others)):.0%}." in said
    stated = round(max(rms(chosen), rms(others)), 2)
    assert stated == error_of("attention_prefill") == error_of("gemm")


TARGETS = {target.name: target for target in traffic.TARGETS}


@functools.cache
def modelled(name: str) -> float:
    """The modelled figure of one launch, in the target's unit."""
    target = TARGETS[name]
    entry = catalogue("gfx950", MEASURING).select("traffic", kernel=target.kernel)
    assert isinstance(entry, KernelEntry)
    found = model.time(trace(traffic.launch(entry, target.problem())))
    return found.microseconds if target.unit == "us" else found.bytes_per_second / 1e12


def test_the_error_of_what_memory_bounds() -> None:
    found = rms(
        modelled(name) / target.published - 1 for name, target in TARGETS.items() if target.counted
    )
    assert round(found, 2) == error_of("traffic")
    assert f"rms error of the twelve memory-bound figures is {found:.1%}" in " ".join(
        DOCUMENT.split()
    )


@pytest.mark.parametrize("name", TARGETS)
def test_the_document_has_what_is_modelled_now(name: str) -> None:
    """The document's figures agree with the model to their three digits."""
    ((published, now),) = re.findall(
        rf"\| {name} \| ([\d.]+) / ([\d.]+) \|", DOCUMENT, re.IGNORECASE
    )
    assert float(published) == TARGETS[name].published
    assert float(now) == pytest.approx(modelled(name), rel=2e-3)
