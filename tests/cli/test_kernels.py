"""`hk-backend kernels`: the catalogue, for programs and for people, without any compiler."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hk_backend.cli.app import app
from hk_backend.kernels import arches, catalogue
from hk_backend.kernels.toolchain import listing

FIELDS = {
    "name": str,
    "arch": str,
    "operator": str,
    "facts": dict,
    "vgpr": int,
    "agpr": int,
    "sgpr": int,
    "spills": int,
    "scratch": int,
    "lds": int,
    "waves_per_simd": int,
    "mfma_share": float,
    "useful_mfma_share": float,
    "bank_conflict_factor": float,
    "waterfall_loops": int,
    "vmcnt0_in_loop": int,
    "code_object": str,
    "symbol": str,
    "args": list,
    "modelled": dict,
}
"""The fields that a program may rely on."""
OF_MATRICES = ("mfma_share", "useful_mfma_share", "bank_conflict_factor")
"""Null of a kernel without matrix instructions."""


def listed(*options: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, ["kernels", "--json", *options])
    assert result.exit_code == 0, result.output
    data: list[dict[str, Any]] = json.loads(result.stdout)
    return data


def test_every_kernel_with_every_field() -> None:
    kernels = listed()
    assert len(kernels) == sum(len(catalogue(arch).kernels) for arch in arches()) > 0
    for kernel in kernels:
        absent = OF_MATRICES if kernel["mfma_share"] is None else ()
        there = {name: kind for name, kind in FIELDS.items() if name not in absent}
        assert {name: type(kernel[name]) for name in there} == there
        assert [kernel[name] for name in absent] == [None] * len(absent)
        assert bool(absent) == (kernel["operator"] in ("attention_merge", "quantize_fp8"))
        assert Path(kernel["code_object"]).is_file()
        assert all(set(argument) == {"name", "type", "offset"} for argument in kernel["args"])
        assert kernel["args"]


def test_every_operator_is_listed() -> None:
    """Both listings have every operator, and JSON the facts that select a kernel."""
    kernels = {kernel["name"]: kernel for kernel in listed()}
    operators = {"attention_merge", "attention_prefill", "gemm", "quantize_fp8"}
    assert {kernel["operator"] for kernel in kernels.values()} == operators
    facts = {"a": "f16", "b": "f16", "scales": "vectors"}
    assert kernels["gemm_f16_128x128"]["facts"] == facts
    lines = CliRunner().invoke(app, ["kernels"]).stdout.splitlines()
    assert {
        line.split()[1].rstrip(",") for line in lines if line.startswith("gfx950 ")
    } == operators


def test_figures_are_the_catalogue_s() -> None:
    for kernel in listed():
        entry = catalogue(kernel["arch"]).kernel(kernel["name"])
        assert kernel["lds"] == entry.static_lds + entry.dynamic_lds
        assert kernel["useful_mfma_share"] == entry.figures.useful_mfma_share
        assert kernel["vgpr"] == entry.vgpr
        assert list(kernel["modelled"]) == list(entry.modelled) != []
        for name, launch in entry.modelled.items():
            assert kernel["modelled"][name] == asdict(launch)


def test_figures_of_launches_are_called_modelled() -> None:
    """Above their table, with the model's error and the launch: each kernel is below its own."""
    heading, checked = "", 0
    for line in CliRunner().invoke(app, ["kernels"]).stdout.splitlines():
        heading = line if line.startswith("gfx950 ") else heading
        name = line.split(" ")[0]
        if "_" not in name:
            continue
        entry = catalogue("gfx950").kernel(name)
        shape, launch = next(iter(entry.modelled.items()))
        error = "error unknown" if launch.error_rms is None else f"error {launch.error_rms:.0%} rms"
        assert heading.endswith(f"; {launch.unit} modelled on {shape}, {error}")
        checked += 1
    assert checked == len(catalogue("gfx950").kernels)


def test_columns_are_explained_before_the_first_table() -> None:
    before, _, _ = CliRunner().invoke(app, ["kernels"]).stdout.partition("\ngfx950 ")
    for column in ("V, A, S", "LDS", "waves", "useful", "TFLOP/s", "bank", "faults"):
        assert f"\n{column}" in f"\n{before}"


def test_part_of_a_name() -> None:
    names = [kernel["name"] for kernel in listed("gemm_bf16_256")]
    assert "gemm_bf16_256x256" in names
    assert all("gemm_bf16_256" in name for name in names)
    result = CliRunner().invoke(app, ["kernels", "gemm_nope"])
    assert result.exit_code == 1
    assert "no kernel has 'gemm_nope' in its name" in result.stderr


def test_one_arch() -> None:
    assert {kernel["arch"] for kernel in listed("--arch", "gfx950")} == {"gfx950"}


def test_an_unknown_arch_is_an_error_that_lists_what_there_is() -> None:
    result = CliRunner().invoke(app, ["kernels", "--json", "--arch", "gfx90a"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "no kernels for 'gfx90a'; arches: gfx950" in result.stderr


@pytest.mark.parametrize("columns", ["80", "200"])
def test_a_table_for_people(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    """Every name and figure is whole on a terminal of any width."""
    monkeypatch.setenv("COLUMNS", columns)
    result = CliRunner().invoke(app, ["kernels"])
    assert result.exit_code == 0
    assert "…" not in result.stdout
    lines = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines() if line}
    for entry in catalogue("gfx950").kernels:
        cells = lines[entry.name]
        assert cells[:3] == [str(entry.vgpr), str(entry.agpr), str(entry.sgpr)]
        useful, launch = entry.figures.useful_mfma_share, next(iter(entry.modelled.values()))
        assert (f"{useful:.1%}" if useful is not None else "-") in cells
        assert (f"{launch.tflops:.0f}" if launch.tflops else f"{launch.terabytes:.2f}") in cells


def test_faults_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = catalogue("gfx950").kernels[0]
    bad = replace(entry, spills=2, scratch=8, figures=replace(entry.figures, vmcnt0_in_loop=1))
    monkeypatch.setattr(listing, "collect", lambda arch: [bad])
    monkeypatch.setenv("COLUMNS", "120")
    assert "2 spills, 8 scratch bytes, 1 vmcnt(0)" in CliRunner().invoke(app, ["kernels"]).stdout


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_no_kernels_at_all_is_an_error(monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    monkeypatch.setattr(listing, "collect", lambda arch: [])
    result = CliRunner().invoke(app, ["kernels", *options])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no kernels: `make kernels` builds them" in result.stderr


def test_no_compiler_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert listed()
