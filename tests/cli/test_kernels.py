"""`hk-backend kernels`: the catalogue, for programs and for people, without any compiler."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from hk_backend.cli.app import app
from hk_backend.kernels import catalogue
from hk_backend.kernels.toolchain import listing

"""The fields that a program may rely on."""
"""Null of a kernel without matrix instructions."""
OPERATORS = {"attention_merge", "attention_prefill", "gemm", "quantize_fp8"}


def listed(*options: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, ["kernels", "--json", *options])
    assert result.exit_code == 0, result.output
    data: list[dict[str, Any]] = json.loads(result.stdout)
    return data


def test_kernels_are_chosen_by_arch_and_by_part_of_a_name() -> None:
    names = [kernel["name"] for kernel in listed("gemm_bf16_256")]
    assert "gemm_bf16_256x256" in names
    assert all("gemm_bf16_256" in name for name in names)
    assert {kernel["arch"] for kernel in listed("--arch", "gfx950")} == {"gfx950"}


def test_a_table_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name and figure is whole on a terminal of any width. Columns are explained before the
    first table; above each stands what is modelled, on which launch, with the model's error."""
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(app, ["kernels"])
    assert result.exit_code == 0
    assert "…" not in result.stdout
    before, _, _ = result.stdout.partition("\ngfx950 ")
    for column in ("V, A, S", "LDS", "waves", "useful", "TFLOP/s", "bank", "faults"):
        assert f"\n{column}" in f"\n{before}"
    heading, operators, checked = "", set(), 0
    for line in filter(None, result.stdout.splitlines()):
        name, *cells = line.split()
        if name == "gfx950":
            heading = line
            operators.add(cells[0].rstrip(","))
        if "_" not in line.split(" ")[0]:
            continue
        entry = catalogue("gfx950").kernel(name)
        shape, launch = next(iter(entry.modelled.items()))
        error = "error unknown" if launch.error_rms is None else f"error {launch.error_rms:.0%} rms"
        assert heading.endswith(f"; {launch.unit} modelled on {shape}, {error}")
        assert cells[:3] == [str(entry.vgpr), str(entry.agpr), str(entry.sgpr)]
        useful = entry.figures.useful_mfma_share
        assert (f"{useful:.1%}" if useful is not None else "-") in cells
        assert (f"{launch.tflops:.0f}" if launch.tflops else f"{launch.terabytes:.2f}") in cells
        checked += 1
    assert checked == len(catalogue("gfx950").kernels)
    assert operators == OPERATORS


def test_faults_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = catalogue("gfx950").kernels[0]
    bad = replace(entry, spills=2, scratch=8, figures=replace(entry.figures, vmcnt0_in_loop=1))
    monkeypatch.setattr(listing, "collect", lambda arch: [bad])
    monkeypatch.setenv("COLUMNS", "120")
    assert "2 spills, 8 scratch bytes, 1 vmcnt(0)" in CliRunner().invoke(app, ["kernels"]).stdout


def test_errors_say_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*options: str) -> str:
        result = CliRunner().invoke(app, ["kernels", *options])
        assert (result.exit_code, result.stdout) == (1, "")
        return result.stderr

    assert "no kernel has 'gemm_nope' in its name" in refused("gemm_nope")
    assert "no kernels for 'gfx90a'; arches: gfx950" in refused("--json", "--arch", "gfx90a")
    monkeypatch.setattr(listing, "collect", lambda arch: [])
    for options in ((), ("--json",)):
        assert "no kernels: `make kernels` builds them" in refused(*options)
