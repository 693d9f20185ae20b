"""Benchmark tables: whole in a pipe, abbreviated on a narrow terminal, never cut."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from hk_backend.bench.attention.measure import Case, Row
from hk_backend.bench.attention.table import TABLE as ATTENTION_TABLE
from hk_backend.bench.linear.measure import Case as LinearCase
from hk_backend.bench.linear.measure import Row as LinearRow
from hk_backend.bench.linear.table import TABLE as LINEAR_TABLE
from hk_backend.bench.tables import Comparison

ATTENTION = [
    Row(Case(4096, 32, 8, 128, "fp32"), kind, 1234.56, 1111.1, 1222.2, 1500.0, spread=0.123)
    for kind in ("packed", "aiter_shuffled/128")
]
ATTENTION.append(Row(Case(512, 9, 3, 64, "bf16"), "packed", error="a long reason " * 8))
FEW = LinearCase("llama8b-gate_up", 1, 28672, 4096)
LINEAR = [
    LinearRow(
        FEW, "fp8_e4m3fn/block", "token_block", 9, 12.34, 2.0, 3.0, 1.0, 1234.5, 1.0, 2.0, 1.0
    )
]
LINEAR.append(LinearRow(FEW, "mxfp4", "", error="a long reason " * 8))
TABLES = [(ATTENTION_TABLE, ATTENTION), (LINEAR_TABLE, LINEAR)]


def printed(kind: Comparison, rows: list, width: int | None) -> list[str]:
    """The lines on a terminal of `width` columns, or in a pipe."""
    sink = io.StringIO()
    console = Console(
        file=sink, width=width or 80, force_terminal=width is not None, color_system=None
    )
    kind.print(console, rows)
    return sink.getvalue().splitlines()


@pytest.mark.parametrize(("kind", "rows"), TABLES, ids=["attention", "linear"])
@pytest.mark.parametrize("width", [None, 80, 200], ids=["pipe", "80", "200"])
def test_no_cell_is_cut(kind: Comparison, rows: list, width: int | None) -> None:
    lines = printed(kind, rows, width)
    assert "…" not in "".join(lines)
    text = "\n".join(lines)
    assert f"failed: {'a long reason ' * 8}".strip() in text.replace("\n", " ")
    for row in rows:
        for cell in kind.cells(row):
            if not cell.startswith("failed") and cell not in ("", "token_block"):
                assert cell in text


@pytest.mark.parametrize(("kind", "rows"), TABLES, ids=["attention", "linear"])
def test_in_a_pipe_a_row_is_a_line(kind: Comparison, rows: list) -> None:
    lines = printed(kind, rows, None)
    first = kind.cells(rows[0])
    assert any(all(cell in line for cell in first) for line in lines)
    assert any(all(heading in line for heading in kind.headings) for line in lines)


@pytest.mark.parametrize(("kind", "rows"), TABLES, ids=["attention", "linear"])
def test_80_columns_suffice(kind: Comparison, rows: list) -> None:
    lines = printed(kind, rows, 80)
    assert max(len(line) for line in lines if "a long reason" not in line) <= 80
    short = [mark for name, mark in kind.narrow.short.items() if mark]
    assert any(all(mark in line for mark in short) for line in lines)


def test_a_single_round_has_no_spread() -> None:
    row = Row(Case(512, 9, 3, 64, "bf16"), "packed", 1.0, 1.0, 1.0, 1.0)
    assert ATTENTION_TABLE.cells(row)[-1] == ""
