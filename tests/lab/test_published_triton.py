"""Published figures of Triton kernels: the stated error, its rows, and the documents that quote it.

`tests/lab/foreign/triton_program.py` runs the kernels and models one of the figures again.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import typer

from bench_serving.published import PANELS
from hk_backend.lab.commands.benches import gpu
from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock import published
from hk_backend.lab.stock.published import COUNTED, FIGURES, VERSIONS, Remodelled
from hk_backend.lab.stock.published_launches import Attention, GroupedProduct, Product

KINDS = ("d64 causal", "d64 full", "d128 causal", "d128 full")
ROOT = Path(__file__).parents[2]
TIMING = " ".join((ROOT / "docs" / "timing.md").read_text().split())
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text()


def test_the_stated_error_is_that_of_every_figure_that_counts() -> None:
    said = published.statement("gfx950")
    assert f": {len(COUNTED)} published figures, " in said
    for version in VERSIONS:
        errors = [100 * (row.modelled[version] / row.published - 1) for row in COUNTED]
        mean = math.fsum(abs(error) for error in errors) / len(errors)
        assert (
            f"from {min(errors):+.0f}% to {max(errors):+.0f}%, mean absolute {mean:.0f}% "
            f"(Triton {version})"
        ) in said
    assert "unknown on gfx942" in published.statement("gfx942")


def test_only_figures_of_an_unknown_program_do_not_count() -> None:
    left_out = [row.of.size for row in FIGURES if row.unknown and isinstance(row.of, Product)]
    assert left_out == [1024, 2048]
    assert len(COUNTED) == len(FIGURES) - 2


def test_rates_are_those_that_stand_beside_our_own_kernels() -> None:
    """Both tables have HipKittens' Triton rates, one without decimals, one with one."""
    rates = {panel.name: panel.rates["Triton"] for panel in PANELS if "Triton" in panel.rates}
    names = {f"attention {kind}": f"attention {kind} b16 64/8" for kind in KINDS}
    for name, panel in {**names, "GEMM fp16": "gemm bf16"}.items():
        found = [row.published for row in FIGURES if row.kernel == name]
        assert found == pytest.approx(rates[panel], abs=0.5 + 0.05)


@pytest.mark.parametrize("row", FIGURES, ids=lambda row: f"{row.kernel} {row.shape}")
def test_a_problem_is_the_one_that_its_row_names(row: published.Figure) -> None:
    of = row.of
    if isinstance(of, Attention):
        assert row.kernel == f"attention d{of.head_size} {'causal' if of.causal else 'full'}"
        assert row.shape == f"N={of.tokens}"
        assert (of.requests, of.heads, of.kv_heads) == (16, 64, 8)
    elif isinstance(of, Product):
        assert row.shape == f"M=N=K={of.size}"
    else:
        assert row.shape == f"{of.groups} x {of.m}x{of.n}x{of.k}"


def test_the_flops_of_a_problem() -> None:
    """Causal attention counts half; no rate is above the matrix units' 2.5 PFLOP/s."""
    assert Attention(64, False, 32, 1, 2, 1).flops == 2 * 2 * 2.0 * 32 * 32 * 64
    assert Attention(64, True, 32, 1, 2, 1).flops == 2 * 2.0 * 32 * 32 * 64
    assert Product(8).flops == GroupedProduct(1, 8, 8, 8).flops == 2 * 8**3
    for row in FIGURES:
        assert 0 < row.published < 2500
        assert all(0 < rate < 2500 for rate in row.modelled.values())


def test_samples_share_both_operands() -> None:
    """Workgroups 0 and 8 of XCD 0 have tiles 0 and 1; XCD 2 is the first one without tiles."""
    sampled = GroupedProduct(2, 2048, 1024, 64).sampled((256, 1, 1), (4, 256))
    assert list(sampled.samples) == [0, 2, 8, 10, 32, 34, 40, 42]
    # 64 tiles: each workgroup of XCDs 0 and 1 has one
    assert sampled.work.sum() == 64
    assert {int(at % 8) for at in sampled.work.nonzero()[0]} == {0, 1}


def test_work_of_attention_is_its_steps() -> None:
    sampled = Attention(64, True, 256, 1, 2, 1).sampled((2, 2, 1), (128, 64, 2))
    assert sampled.work.tolist() == [2, 4, 2, 4]
    assert Attention(64, False, 256, 1, 2, 1).sampled((2, 2, 1), (128, 64, 2)).work.tolist() == [
        4, 4, 4, 4,
    ]  # fmt: skip


def test_a_figure_that_the_clock_does_not_give_any_more_fails() -> None:
    row = COUNTED[0]
    stored = row.modelled["3.9"]
    assert not Remodelled(row, stored, "3.9").error
    assert Remodelled(row, stored, "3.10").error == "no rates of Triton 3.10 are stored"
    changed = Remodelled(row, 1.05 * stored, "3.9")
    assert changed.error.startswith("attention d128 full N=1024: ")
    assert changed.as_json()["published_tflops"] == row.published


def test_the_sweep_models_every_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "microseconds", lambda gpu, of: of.flops / 1e9)
    monkeypatch.setattr(published, "triton_version", lambda: "3.9")
    said: list[str] = []
    rows = list(published.Sweep(TritonGpu("gfx950")).run(said.append))
    assert [row.figure for row in rows] == list(FIGURES)
    assert [row.rate for row in rows] == pytest.approx([1000.0] * len(rows))
    assert said[0] == f"1/{len(FIGURES)}  attention d128 full N=1024"


def test_figures_are_of_one_arch() -> None:
    with pytest.raises(typer.BadParameter, match="published figures are of gfx950"):
        gpu.command(arch=gpu.Arch.gfx942, cases="published", into=None, as_json=False)


def test_documents_quote_the_stated_error() -> None:
    first, last = published.MARKS
    part = BENCHMARKS.partition(first)[2].partition(last)[0]
    assert part.strip() == published.text()
    for name in ("README.md", "docs/timing.md", "docs/run-object.md"):
        said = " ".join((ROOT / name).read_text().split())
        assert f"{len(COUNTED)} published figures" in said, name
        assert published.error_of(COUNTED) in said, name
    for version in VERSIONS:
        assert published.error_of(COUNTED, version) in TIMING
