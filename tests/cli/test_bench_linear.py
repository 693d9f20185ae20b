"""`hk-backend bench linear`: its options and JSON, what counts as failed, the bounds."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

from hk_backend.bench import settings
from hk_backend.bench.linear import measure as suite
from hk_backend.bench.linear.measure import Case, Row, measure
from hk_backend.bench.linear.sweep import LAYERS, Sweep
from hk_backend.bench.linear.table import TABLE
from hk_backend.bench.linear.weights import DENSE, FORMATS, make_weight
from hk_backend.bench.tables import markdown
from hk_backend.cli.app import app

TINY = Case("tiny", 3, 64, 128)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "MATMUL_SIZE", 16)
    monkeypatch.setattr(settings, "MATMUL_FLOPS", 2 * 16**3)
    monkeypatch.setattr(suite, "FOOTPRINT", 1 << 16)


def test_the_command_prints_one_json_document() -> None:
    options = "--layers smollm2-o --tokens 40 --formats bf16,mxfp4 --rounds 1 --threads 1"
    command = [sys.executable, "-m", "hk_backend.cli.app", "bench", "linear", *options.split()]
    done = subprocess.run(
        [*command, "--isa", "avx2", "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["environment"]["device"], data["environment"]["threads"]) == ("cpu:avx2", 1)
    bf16, mxfp4 = data["cases"]
    assert (bf16["format"], bf16["activations"]) == ("bf16", "none")
    assert (mxfp4["format"], mxfp4["activations"]) == ("mxfp4", "mx")
    for case in data["cases"]:
        assert case["error"] == ""
        assert (case["n"], case["k"], case["tokens"]) == (576, 576, 40)
        assert case["hk/fp32"] == pytest.approx(case["fp32_ms"] / case["hk_ms"])
        assert case["gflops"] == pytest.approx(2 * 40 * 576 * 576 / case["hk_ms"] / 1e6)
        assert case["hk/bound"] is None  # forty tokens: arithmetic decides
        assert case["format/bf16"] == pytest.approx(bf16["hk_ms"] / case["hk_ms"])


@pytest.mark.parametrize("quantised", [True, False])
def test_every_format_is_measured_against_its_bounds(quantised: bool) -> None:
    for row in measure(TINY, FORMATS, quantised, rounds=1):
        assert row.error == ""
        assert row.hk_ms > 0
        bounds = (row.read_ms, row.multiply_ms, row.unpack_ms)
        assert row.ratios["hk/bound"] == max(bounds) / row.hk_ms
        assert getattr(row, f"{row.bound}_ms") == max(bounds)
        assert (row.activations != "none") == (quantised and row.format not in DENSE)


def test_float32_sums_of_a_long_row_are_no_error() -> None:
    (row,) = measure(Case("long", 3, 64, 8192), ["fp32"], False, rounds=1)
    assert row.error == ""


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--layers", "llama8b", "'llama8b' is not one of smollm2-qkv"),
        ("--tokens", "0", "'0' is not a positive number"),
        ("--formats", "fp8", "'fp8' is not one of bf16"),
    ],
)
def test_a_bad_option_is_named_with_its_value(option: str, value: str, expected: str) -> None:
    arguments = {option.removeprefix("--"): value}
    with pytest.raises(typer.BadParameter, match="^" + option) as caught:
        Sweep.parse(**arguments)
    assert expected in str(caught.value)
    assert CliRunner().invoke(app, ["bench", "linear", option, value]).exit_code == 2


def test_the_default_sweep_is_what_the_docs_promise() -> None:
    plan = Sweep.parse()
    assert {case.tokens for case in plan.cases} == {1, 4, 16, 256, 1024}
    assert {case.layer for case in plan.cases} == set(LAYERS)
    assert plan.quantised_activations


def test_a_wrong_result_is_a_failure_without_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    right = suite.linear

    def scaled(x: torch.Tensor, weight: Any) -> torch.Tensor:
        return right(x, weight) * (1.02 if weight.format == "mxfp4" else 1)

    monkeypatch.setattr(suite, "linear", scaled)
    good, wrong = measure(TINY, ["bf16", "mxfp4"], True, rounds=1)
    assert wrong.error.startswith("differs from the reference by 2.0e-02")
    assert math.isnan(wrong.hk_ms)
    assert wrong.as_json()["hk_ms"] is None
    assert good.error == ""


def test_an_operator_that_raises_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError("x: not served")

    monkeypatch.setattr(suite, "linear", refuse)
    (row,) = measure(TINY, ["bf16"], True, rounds=1)
    assert row.error == "x: not served"
    assert "1 failed" in TABLE.summary([row])


def test_a_weight_is_checked_at_both_block_scales_and_channels() -> None:
    dense = torch.randn(256, 256).bfloat16()
    blocks = make_weight(dense, "fp8_e4m3fn/block", True)
    assert blocks.scales is not None
    assert tuple(blocks.scales.shape) == (2, 2)
    assert blocks.packed.activations == "token_block"
    channels = make_weight(dense, "fp8_e4m3fn", True)
    assert channels.scales is not None
    assert channels.scales.numel() == 256


def test_losses_are_counted_beside_wins() -> None:
    win = Row(TINY, "bf16", "none", 100, 1.0, 2.0, 3.0, 1.0, 10.0, 0.1, 0.2, 0.3, 0.01)
    loss = replace(win, hk_ms=6.0)
    failed = Row(TINY, "mxfp4", "", error="no")
    assert win.bound == "unpack"
    assert TABLE.summary([win, loss, failed]) == (
        "1 wins, 1 losses, 1 failed; smallest ratio to bfloat16 0.50"
    )
    table = markdown(TABLE.headings, map(TABLE.cells, [win, loss, failed])).splitlines()
    assert len({line.count("|") for line in table}) == 1
    assert "failed: no" in table[-1]
