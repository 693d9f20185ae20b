"""`hk-backend bench launch`: what it prints; its figures are nowhere asserted.

tests/integration/hk_vllm/test_bench_launch.py runs it with an engine.
"""

from __future__ import annotations

import pytest

from hk_backend.bench.launch import linear
from hk_backend.bench.launch.measure import STEPS, Launches, Row
from hk_backend.bench.launch.table import print_rows


def test_an_engine_that_cannot_be_measured_is_a_row() -> None:
    rows = list(Launches(("none_such",), 1).run(lambda line: None))
    of_engine = [row for row in rows if row.engine == "none_such"]
    assert len(of_engine) == len(STEPS)
    assert all("hk_none_such" in row.error for row in of_engine)
    assert len(rows) == len(STEPS) + len(linear.STEPS)


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    print_rows(Console(width=120), [Row("vllm", "prefill", 3.0, 6.0), Row("vllm", "m", error="x")])
    printed = capsys.readouterr().out
    for text in ("vllm", "prefill", "3.00", "6.00", "0.50", "-3.00", "x"):
        assert text in printed
