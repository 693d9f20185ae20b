"""`python -m bench_serving kernels --modelled --cases goals`: HK's kernels beside their goals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench_serving import modelled_goals
from bench_serving.__main__ import app
from bench_serving.modelled import ARCH
from bench_serving.modelled_goals import LAUNCH_US, MARKS, Way
from hk_backend.kernels.catalogue import NoKernel, catalogue
from hk_backend.kernels.gemm_operands import LAYERS
from hk_backend.kernels.masks import CAPPED, WINDOW
from hk_backend.lab.bench.attention import explain
from hk_backend.lab.bench.gemm.timers import Clock, Problem
from tests.bench_serving.test_modelled import cells_of, part
from tests.models import ROOT

GAP = 2.0


def microseconds(kernels: object, head_size: int, way: Way) -> float:
    """Time of a way: caps take 3 times as long as others, windows 0.4 of it, other pages 1.25."""
    time = 10.0 * head_size
    time *= 3.0 if way.mask == CAPPED else 1.0
    time *= 0.4 if way.shape.window else 1.0
    time *= 1.03 if way.mask == WINDOW and not way.shape.window else 1.0
    return time * (1.25 if way.keys == "tokens" else 1.0)


def of_way(kernels: object, shape: object, head_size: int, way: explain.Choice) -> float:
    """Time of a step: 30 us a launch for split keys, which have two, else the rows of its tile."""
    return 60.0 if way.parts.number > 1 else float(way.rows)


def of_layer(timer: Clock, entry: Any, splits: int, problem: Problem) -> float:
    """Time of a layer: twice the goal with one row, half of it otherwise; 10 FLOPs an us at most.

    The rate makes every layer's goal the FLOPs, not the bytes."""
    flops = 2.0 * problem.m * problem.n * problem.k
    if problem.m == problem.n == problem.k == 8192:
        return flops / 10
    goal = LAUNCH_US + flops / 7.5
    return goal * (2.0 if problem.m == 1 else 0.5)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The document's part that the command writes with these times."""
    monkeypatch.setattr(modelled_goals, "_time", microseconds)
    monkeypatch.setattr(modelled_goals, "_gap", lambda: GAP)
    monkeypatch.setattr(explain, "microseconds", of_way)
    monkeypatch.setattr(Clock, "microseconds", of_layer)
    document = tmp_path / "document.md"
    document.write_text("old tables".join(MARKS))
    options = ["--cases", "goals", "--out", str(tmp_path), "--into", str(document)]
    result = CliRunner().invoke(app, ["kernels", "--modelled", *options])
    assert result.exit_code == 0, result.output
    text = part(document.read_text(), MARKS)
    assert text.strip() == (tmp_path / "modelled_goals.md").read_text().strip()
    return text


def test_the_tables(written: str) -> None:
    """Variants are multiples of the plain kernel, steps lose the gaps of their launches, layers are
    shares of their goal; bold is a goal missed."""
    assert written.count("error 5% rms on published figures") == 2
    cells = cells_of(written)
    assert cells["soft cap"] == ["3", "3", "3"]
    assert cells["soft cap in a window of 1024"][:2] == ["3", "3"]
    assert cells["soft cap, pages of one token"][:2] == ["3", "3"]
    assert cells["soft cap, FP8 cache"] == ["", "3"]
    assert cells["sinks"] == ["**1.03**", "**1.03**", "**1.03**", "1.02"]
    assert cells["a window of 1024, 4 requests of 8192"][1:] == ["**0.4**", "**0.4**", "0.36"]
    late = cells["200 tokens over 8,200 keys, heads 8/1"]
    assert late[1:] == [f"**{60 - 2 * GAP:.1f} (goal 20)**", *late[2:]]
    assert late[2:] == [f"{64 - GAP:.1f}", f"{256 - GAP:.1f}"]
    assert cells["1 x 128 fresh tokens"] == ["64 rows", late[2], *late[2:]]
    layers, mean, most, above = cells["bf16"]
    assert (layers, above) == ("128", "16")
    assert float(mean) == pytest.approx(0.5 * 4 ** (16 / 128), abs=0.006)
    assert most.startswith("**2.00** (llama")
    assert "M=1)" in most


def test_a_goal_of_few_rows_is_their_bytes() -> None:
    """Weights of FP8 count half of those of bf16; results have two bytes."""
    sizes, rate = (1, 1000, 5850), 1e12
    formats = (LAYERS[name] for name in ("fp8_channel", "bf16"))
    fp8, bf16 = (modelled_goals._goal(of, sizes, rate) for of in formats)
    assert fp8 == pytest.approx(LAUNCH_US + (1001 * 5850 + 2000) / 5.85e6)
    assert bf16 - fp8 == pytest.approx(1001 * 5850 / 5.85e6)


@pytest.mark.slow
def test_the_documented_goals_are_the_model_s(tmp_path: Path) -> None:
    text = modelled_goals.model(catalogue(ARCH), 2, tmp_path, lambda line: None)
    assert part((ROOT / "docs" / "benchmarks.md").read_text(), MARKS).strip() == text


def test_variants_name_kernels_that_there_are() -> None:
    """Every variant's kernels exist for each of its head sizes."""
    kernels = catalogue(ARCH)
    for each in modelled_goals.VARIANTS:
        for size in each.head_sizes:
            for way in (each.way, each.beside):
                found = modelled_goals.kernels_of(kernels, size, way)
                assert not isinstance(found, NoKernel), (each.name, size, found)
