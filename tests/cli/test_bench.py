"""`hk-backend bench` on a processor: options, JSON, the order of candidates, and failures.

tests/integration/engines/test_attention.py runs `bench launch` with an engine.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

from bench_serving.__main__ import app as serving
from hk_backend.cli.app import app
from hk_backend.config import get_config
from hk_backend.lab.bench import settings
from hk_backend.lab.bench.attention import measure as attention
from hk_backend.lab.bench.attention.layouts import LAYOUTS, paged
from hk_backend.lab.bench.attention.table import TABLE as ATTENTION_TABLE
from hk_backend.lab.bench.launch import linear as linear_launches
from hk_backend.lab.bench.launch.measure import STEPS, OverheadSweep
from hk_backend.lab.bench.linear import measure as linear
from hk_backend.lab.bench.linear.table import TABLE as LINEAR_TABLE
from hk_backend.lab.bench.linear.weights import DENSE, FORMATS
from hk_backend.lab.bench.stopwatch import Timing, alternate
from hk_backend.lab.options import Isa
from hk_backend.reference import gather_paged

ATTENTION = attention.AttentionCase(48, 4, 2, 64, "fp32")
LINEAR = linear.LinearCase("tiny", 3, 64, 128)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "MATMUL_SIZE", 16)
    monkeypatch.setattr(settings, "MATMUL_FLOPS", 2 * 16**3)
    monkeypatch.setattr(linear, "FOOTPRINT", 1 << 16)


def test_one_json_document() -> None:
    """The command, limited to AVX2 with one round on one thread, prints one JSON document."""
    options = "--layers smollm2-o --tokens 40 --formats bf16,mxfp4 --isa avx2"
    words = [*options.split(), "--rounds", "1", "--threads", "1", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "hk_backend.cli.app", "bench", "linear", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    data: dict[str, Any] = json.loads(done.stdout)
    environment = data["environment"]
    assert (environment["device"], environment["torch_isa"]) == ("cpu:avx2", "AVX2")
    assert (environment["threads"], environment["rounds"]) == (1, 1)
    assert [case["error"] for case in data["cases"]] == ["", ""]
    bf16, mxfp4 = data["cases"]
    assert (bf16["format"], bf16["activations"]) == ("bf16", "none")
    assert (mxfp4["format"], mxfp4["activations"]) == ("mxfp4", "mx")
    for case in (bf16, mxfp4):
        assert (case["n"], case["k"], case["tokens"]) == (576, 576, 40)
        assert case["hk/fp32"] == pytest.approx(case["fp32_ms"] / case["hk_ms"])
        assert case["gflops"] == pytest.approx(2 * 40 * 576 * 576 / case["hk_ms"] / 1e6)
        assert case["hk/bound"] is None  # forty tokens: arithmetic, not memory, decides
        assert case["format/bf16"] == pytest.approx(bf16["hk_ms"] / case["hk_ms"])


@pytest.mark.parametrize(
    ("application", "arguments", "expected"),
    [
        (app, "bench attention --lengths 512,0", "--lengths: '0' is not a positive number"),
        (app, "bench attention --lengths many", "'many' is not a positive number"),
        (app, "bench attention --head-sizes 65", "'65' is not a positive multiple of 8"),
        (app, "bench attention --heads 9/4", "--heads: '9/4' is not QUERY/KV"),
        (app, "bench attention --heads 9", "'9' is not QUERY/KV"),
        (app, "bench attention --heads 8/0", "'8/0' is not QUERY/KV"),
        (app, "bench attention --dtypes fp64", "--dtypes: 'fp64' is not one of bf16, fp16, fp32"),
        (app, "bench attention --layouts nhd,paged", "--layouts: 'paged' is not one of nhd, hnd"),
        (app, "bench attention --block-sizes 12", "'12' is not a positive multiple of 8"),
        (app, "bench linear --layers llama8b", "--layers: 'llama8b' is not one of smollm2-qkv"),
        (app, "bench linear --tokens 0", "--tokens: '0' is not a positive number"),
        (app, "bench linear --formats fp8", "--formats: 'fp8' is not one of bf16"),
        (app, "bench linear --isa nope", "'--isa': 'nope' is not one of"),
        (app, "quantize in out --format nope", "'--format': 'nope' is not one of"),
        (serving, "serve --engine nope", "'--engine': 'nope' is not one of"),
    ],
)
def test_a_bad_option_is_named_with_its_value(
    application: typer.Typer, arguments: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    result = CliRunner().invoke(application, arguments.split())
    assert result.exit_code == 2
    assert expected in " ".join(result.stderr.split())


def test_work_is_what_a_causal_mask_leaves() -> None:
    """A multiply-add counts as two operations, and every row sees the cached tokens."""
    assert ATTENTION.flops == sum(query + 1 for query in range(48)) * 2 * 2 * 64 * 4
    case = attention.AttentionCase(5, 4, 2, 64, "fp32", cached=43)
    assert case.flops == 4 * sum(44 + row for row in range(5)) * 64 * 4
    assert str(case) == "N=5+43 d=64 4/2 fp32"
    rows = attention.measure(case, ["packed", "hnd/16"], rounds=1)
    assert [(row.error, row.hk > 0) for row in rows] == [("", True)] * 2


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_paged_cache_holds_the_packed_keys_and_values(layout: str) -> None:
    key, value = torch.randn(2, 45, 2, 64)
    cache, block_table = paged(key, value, layout, 16)
    assert torch.equal(gather_paged(cache.key, cache, block_table[0], 45), key)
    assert torch.equal(gather_paged(cache.value, cache, block_table[0], 45), value)


@pytest.mark.parametrize("quantised", [True, False])
def test_every_format_is_measured_against_its_bounds(quantised: bool) -> None:
    for row in linear.measure(LINEAR, FORMATS, quantised, rounds=1):
        assert row.error == ""
        assert row.hk_ms > 0
        bounds = (row.read_ms, row.multiply_ms, row.unpack_ms)
        assert row.ratios["hk/bound"] == max(bounds) / row.hk_ms
        assert getattr(row, f"{row.bound}_ms") == max(bounds)
        assert (row.activations != "none") == (quantised and row.format not in DENSE)


def test_a_wrong_result_is_a_failure_without_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """One kind of keys and one format of weights give wrong results; the others are measured."""
    right, product = attention._hk_call, linear.linear

    def scaled(kind: str, *tensors: torch.Tensor) -> Callable[[], torch.Tensor]:
        call = right(kind, *tensors)
        return (lambda: call() * 1.02) if kind == "packed" else call

    def scaled_linear(x: torch.Tensor, weight: Any) -> torch.Tensor:
        return product(x, weight) * (1.02 if weight.format == "mxfp4" else 1)

    monkeypatch.setattr(attention, "_hk_call", scaled)
    monkeypatch.setattr(linear, "linear", scaled_linear)
    wrong, good = attention.measure(ATTENTION, ["packed", "hnd/16"], rounds=1)
    assert wrong.error.startswith("differs from SDPA by 2.0e-02")
    assert math.isnan(wrong.hk)
    assert wrong.as_json()["hk"] is None
    assert (good.error, good.hk > 0) == ("", True)
    good_format, wrong_format = linear.measure(LINEAR, ["bf16", "mxfp4"], True, rounds=1)
    assert wrong_format.error.startswith("differs from the reference by 2.0e-02")
    assert math.isnan(wrong_format.hk_ms)
    assert wrong_format.as_json()["hk_ms"] is None
    assert good_format.error == ""


def test_what_cannot_be_measured_is_a_row_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layout that does not fit the blocks, a failing operator and an absent engine are rows."""

    def refuse(*_: object, **__: object) -> None:
        raise ValueError("dtype float32 is not served")

    (misfit,) = attention.measure(ATTENTION, ["cpu_attn_amx/24"], rounds=1)
    assert "24 tokens in a block" in misfit.error
    monkeypatch.setattr(attention, "attention_prefill", refuse)
    monkeypatch.setattr(linear, "linear", refuse)
    of_attention = list(attention.measure(ATTENTION, ["packed"], rounds=1))
    of_linear = list(linear.measure(LINEAR, ["bf16"], True, rounds=1))
    for rows, table in ((of_attention, ATTENTION_TABLE), (of_linear, LINEAR_TABLE)):
        assert [row.error for row in rows] == ["dtype float32 is not served"]  # type: ignore[attr-defined]
        assert "1 failed" in table.summary(rows)  # type: ignore[arg-type]
    launches = list(OverheadSweep(("none_such",), 1).run(lambda line: None))
    of_engine = [row for row in launches if row.engine == "none_such"]
    assert len(of_engine) == len(STEPS)
    assert all("hk_none_such" in row.error for row in of_engine)
    assert len(launches) == len(STEPS) + len(linear_launches.STEPS)


def test_candidates_alternate_and_every_other_round_runs_backwards() -> None:
    """A quick call is repeated within a sample, and the sample's time divided by the
    repetitions."""
    now, calls = [0.0], []

    def candidate(name: str, seconds: float) -> Callable[[], None]:
        def call() -> None:
            calls.append(name)
            now[0] += seconds

        return call

    two = {"a": candidate("a", 1.0), "b": candidate("b", 3.0)}
    timings = alternate(two, rounds=3, clock=lambda: now[0])
    assert calls[:4] == ["a", "a", "b", "b"]  # unmeasured
    assert calls[4:] == ["a", "b", "b", "a", "a", "b"]
    assert timings["a"].samples == (1.0, 1.0, 1.0)
    assert timings["b"].samples == (3.0, 3.0, 3.0)
    calls.clear()
    quick = alternate({"q": candidate("q", 0.001)}, rounds=2, clock=lambda: now[0])["q"]
    assert len(calls) == 2 + 2 * 20
    assert quick.samples == pytest.approx((0.001, 0.001))


def test_a_timing_is_its_median_not_its_mean_or_best() -> None:
    timing = Timing((1.0, 2.0, 100.0, 2.0, 3.0))
    assert timing.median == 2.0
    assert timing.spread == pytest.approx((3.0 - 2.0) / 2.0)
    assert math.isnan(Timing((5.0,)).spread), "one sample says nothing"


@pytest.mark.parametrize("command", ["attention", "linear"])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("gpu", "HK_DEVICE='gpu' is not valid: expected one of: auto, hip, cpu"),
        ("hip", "HK_DEVICE=hip: this benchmark measures the host kernels"),
        ("emulated:gfx950", "HK_DEVICE=emulated:gfx950: this benchmark measures the host kernels"),
    ],
)
def test_another_device_is_one_line(
    command: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HK_DEVICE", value)
    get_config.cache_clear()
    monkeypatch.setattr(settings, "limit_isa", lambda isa: None)
    try:
        result = CliRunner().invoke(app, ["bench", command])
    finally:
        get_config.cache_clear()
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(said)


@pytest.mark.usefixtures("not_held")
def test_instructions_that_the_processor_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the flag that the user set."""
    monkeypatch.setattr(settings._cpu, "available_isas", lambda: ["avx2", "portable"])
    with pytest.raises(typer.BadParameter) as caught:
        settings.limit_isa(Isa.avx512)
    assert str(caught.value) == "--isa avx512: this processor has avx2, portable"
    monkeypatch.setattr(settings._cpu, "why_no_amx", lambda: "no leave")
    with pytest.raises(typer.BadParameter, match=r"--isa amx: .* avx2, portable \(no leave\)"):
        settings.limit_isa(Isa.amx)
