"""`hk-backend kernels` lists the catalogue without a compiler. Tables of `hk-backend bench` are
whole in a pipe and abbreviated on a narrow terminal."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from hk_backend.cli.app import app
from hk_backend.kernels import catalogue
from hk_backend.lab.bench.attention import measure as attention
from hk_backend.lab.bench.attention.table import TABLE as ATTENTION_TABLE
from hk_backend.lab.bench.linear import measure as linear
from hk_backend.lab.bench.linear.table import TABLE as LINEAR_TABLE
from hk_backend.lab.commands import kernels
from hk_backend.lab.tables import Comparison, markdown


def listed(*options: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, ["kernels", "--json", *options])
    assert result.exit_code == 0, result.output
    data: list[dict[str, Any]] = json.loads(result.stdout)
    return data


def test_kernels_are_chosen_by_arch_and_by_part_of_a_name() -> None:
    names = [kernel["name"] for kernel in listed("gemm_bf16_256")]
    assert "gemm_bf16_256x256" in names
    assert all("gemm_bf16_256" in name for name in names)
    for kernel in listed("--arch", "gfx950"):
        entry = catalogue("gfx950").kernel(kernel["name"])
        assert (kernel["arch"], kernel["facts"], kernel["vgpr"]) == (
            "gfx950",
            entry.facts,
            entry.vgpr,
        )
        assert kernel["lds"] == entry.static_lds + entry.dynamic_lds
        assert kernel["useful_mfma_share"] == entry.figures.useful_mfma_share


def test_faults_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = catalogue("gfx950").kernels[0]
    bad = replace(entry, spills=2, scratch=8, figures=replace(entry.figures, vmcnt0_in_loop=1))
    monkeypatch.setattr(kernels, "collect", lambda arch: [bad])
    monkeypatch.setenv("COLUMNS", "120")
    assert "2 spills, 8 scratch bytes, 1 vmcnt(0)" in CliRunner().invoke(app, ["kernels"]).stdout


def test_errors_say_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*options: str) -> str:
        result = CliRunner().invoke(app, ["kernels", *options])
        assert (result.exit_code, result.stdout) == (1, "")
        return result.stderr

    assert "no kernel has 'gemm_nope' in its name" in refused("gemm_nope")
    assert "no kernels for 'gfx90a'; arches: gfx950" in refused("--json", "--arch", "gfx90a")
    monkeypatch.setattr(kernels, "collect", lambda arch: [])
    for options in ((), ("--json",)):
        assert "no kernels: `make kernels` builds them" in refused(*options)


REASON = ("a long reason " * 8).strip()
LONG = attention.AttentionCase(4096, 32, 8, 128, "fp32")
FEW = linear.LinearCase("llama8b-gate_up", 1, 28672, 4096)
RATES = (1234.56, 1111.1, 1222.2, 1500.0)
TABLES = [
    pytest.param(
        ATTENTION_TABLE,
        [
            attention.AttentionTiming(LONG, "packed", *RATES, spread=0.123),
            attention.AttentionTiming(
                LONG, "aiter_shuffled/128", *(rate / 2 for rate in RATES[:1]), *RATES[1:]
            ),
            attention.AttentionTiming(
                attention.AttentionCase(512, 9, 3, 64, "bf16"), "packed", error=REASON
            ),
        ],
        "smallest ratio to SDPA 0.56",
        id="attention",
    ),
    pytest.param(
        LINEAR_TABLE,
        [
            linear.LinearTiming(
                FEW, "fp8_e4m3fn/block", "token_block", 9, 1.0, 2, 3, 1, 1234.5, 1, 2, 1
            ),
            linear.LinearTiming(
                FEW, "bf16", "none", 9, 6.0, 2.0, 3.0, 1.0, 1234.5, 0.1, 0.2, 0.3, 0.01
            ),
            linear.LinearTiming(FEW, "mxfp4", "", error=REASON),
        ],
        "smallest ratio to bfloat16 0.50",
        id="linear",
    ),
]


@pytest.mark.parametrize(("kind", "rows", "smallest"), TABLES)
@pytest.mark.parametrize("width", [None, 80, 200], ids=["pipe", "80", "200"])
def test_a_table_is_never_cut_and_losses_stand_beside_wins(
    kind: Comparison, rows: Sequence[Any], smallest: str, width: int | None
) -> None:
    """A table fits a terminal of 80 columns; in a pipe each row is one line."""
    sink = io.StringIO()
    is_terminal = width is not None
    kind.print(
        Console(file=sink, width=width or 80, force_terminal=is_terminal, color_system=None), rows
    )
    text = sink.getvalue()
    lines = text.splitlines()
    assert "…" not in text
    assert f"failed: {REASON}" in text.replace("\n", " ")
    assert lines[-1] == f"1 wins, 1 losses, 1 failed; {smallest}"
    for row in rows:
        for cell in kind.cells(row):
            assert cell.startswith("failed") or cell in ("none", "token_block") or cell in text
    if width is None:
        assert any(all(cell in line for cell in kind.cells(rows[0])) for line in lines)
        assert any(all(heading in line for heading in kind.headings) for line in lines)
    if width == 80:
        assert max(len(line) for line in lines[:-1] if REASON not in line) <= 80
        short = [mark for mark in kind.narrow.short.values() if mark]
        assert any(all(mark in line for mark in short) for line in lines)
    table = markdown(kind.headings, map(kind.cells, rows)).splitlines()
    assert len({line.count("|") for line in table}) == 1
    assert f"failed: {REASON}" in table[-1]
