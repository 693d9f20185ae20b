"""Tables of `hk-backend bench`: whole in a pipe, abbreviated on a narrow terminal, never cut."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console

from hk_backend.bench.attention import measure as attention
from hk_backend.bench.attention.table import TABLE as ATTENTION_TABLE
from hk_backend.bench.linear import measure as linear
from hk_backend.bench.linear.table import TABLE as LINEAR_TABLE
from hk_backend.bench.tables import Comparison, markdown

REASON = ("a long reason " * 8).strip()
LONG = attention.Case(4096, 32, 8, 128, "fp32")
FEW = linear.Case("llama8b-gate_up", 1, 28672, 4096)
RATES = (1234.56, 1111.1, 1222.2, 1500.0)
TABLES = [
    pytest.param(
        ATTENTION_TABLE,
        [
            attention.Row(LONG, "packed", *RATES, spread=0.123),
            attention.Row(
                LONG, "aiter_shuffled/128", *(rate / 2 for rate in RATES[:1]), *RATES[1:]
            ),
            attention.Row(attention.Case(512, 9, 3, 64, "bf16"), "packed", error=REASON),
        ],
        "smallest ratio to SDPA 0.56",
        id="attention",
    ),
    pytest.param(
        LINEAR_TABLE,
        [
            linear.Row(FEW, "fp8_e4m3fn/block", "token_block", 9, 1.0, 2, 3, 1, 1234.5, 1, 2, 1),
            linear.Row(FEW, "bf16", "none", 9, 6.0, 2.0, 3.0, 1.0, 1234.5, 0.1, 0.2, 0.3, 0.01),
            linear.Row(FEW, "mxfp4", "", error=REASON),
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
    """On a terminal, for which 80 columns suffice, or in a pipe, where a row is a line."""
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
