"""`hk-backend bench attention`: its options and JSON, the alternation, what counts as failed."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
import typer
from typer.testing import CliRunner

from hk_backend.bench import settings
from hk_backend.bench.attention import measure as attention
from hk_backend.bench.attention.layouts import LAYOUTS, paged
from hk_backend.bench.attention.measure import Case, Row, measure
from hk_backend.bench.attention.sweep import Sweep
from hk_backend.bench.attention.table import TABLE
from hk_backend.bench.options import Isa
from hk_backend.bench.tables import markdown
from hk_backend.bench.timing import Timing, alternate
from hk_backend.cli.app import app
from hk_backend.config import get_config
from hk_backend.reference import gather_paged

TINY = Case(48, 4, 2, 64, "fp32")


@pytest.fixture(autouse=True)
def _tiny_matmul(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "MATMUL_SIZE", 16)
    monkeypatch.setattr(settings, "MATMUL_FLOPS", 2 * 16**3)


def test_the_command_prints_one_json_document_and_isa_holds_both_libraries() -> None:
    options = (
        "--lengths 32 --head-sizes 64 --heads 4/2 --dtypes fp32 --layouts nhd --block-sizes 16"
    )
    command = [sys.executable, "-m", "hk_backend.cli.app", "bench", "attention", *options.split()]
    done = subprocess.run(
        [*command, "--rounds", "1", "--threads", "1", "--isa", "avx2", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    environment = data["environment"]
    assert (environment["device"], environment["torch_isa"]) == ("cpu:avx2", "AVX2")
    assert (environment["threads"], environment["rounds"]) == (1, 1)
    assert [case["kv"] for case in data["cases"]] == ["packed", "nhd/16"]
    packed, nhd = data["cases"]
    assert packed["paged/packed"] is None
    assert nhd["paged/packed"] == pytest.approx(nhd["hk"] / packed["hk"])
    for case in data["cases"]:
        assert case["error"] == ""
        assert case["hk/sdpa"] == pytest.approx(case["hk"] / case["sdpa"])
        assert case["hk/matmul"] == pytest.approx(case["hk"] / case["matmul"])


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--lengths", "512,0", "'0' is not a positive number"),
        ("--lengths", "many", "'many' is not a positive number"),
        ("--head-sizes", "65", "'65' is not a positive multiple of 8"),
        ("--heads", "9/4", "'9/4' is not QUERY/KV"),
        ("--heads", "9", "'9' is not QUERY/KV"),
        ("--heads", "8/0", "'8/0' is not QUERY/KV"),
        ("--dtypes", "fp64", "'fp64' is not one of bf16, fp16, fp32"),
        ("--layouts", "nhd,paged", "'paged' is not one of nhd, hnd"),
        ("--block-sizes", "12", "'12' is not a positive multiple of 8"),
    ],
)
def test_a_bad_option_is_named_with_its_value(option: str, value: str, expected: str) -> None:
    name = option.removeprefix("--").replace("-", "_")
    with pytest.raises(typer.BadParameter, match="^" + option) as caught:
        Sweep.parse(**{name: value})
    assert expected in str(caught.value)
    assert CliRunner().invoke(app, ["bench", "attention", option, value]).exit_code == 2


def test_the_default_sweep_is_what_the_docs_promise() -> None:
    plan = Sweep.parse()
    assert len(plan.cases) == 2 * 2 * 2 * 4
    assert {case.tokens for case in plan.cases} == {512, 1024, 2048, 4096}
    assert len(plan.kinds) == 1 + len(LAYOUTS) * 2
    assert Sweep.parse(layouts="none").kinds == ["packed"]


def test_work_is_what_a_causal_mask_leaves() -> None:
    pairs = sum(query + 1 for query in range(48))
    assert TINY.flops == pairs * 2 * 2 * 64 * 4  # two products, two operations each


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_paged_cache_holds_the_packed_keys_and_values(layout: str) -> None:
    key, value = torch.randn(2, 45, 2, 64)
    cache, block_table = paged(key, value, layout, 16)
    assert torch.equal(gather_paged(cache.key, cache, block_table[0], 45), key)
    assert torch.equal(gather_paged(cache.value, cache, block_table[0], 45), value)


def test_cached_tokens_are_seen_by_every_row_and_count_as_work() -> None:
    case = Case(5, 4, 2, 64, "fp32", cached=43)
    pairs = sum(44 + row for row in range(5))
    assert case.flops == 4 * pairs * 64 * 4
    assert str(case) == "N=5+43 d=64 4/2 fp32"
    for row in measure(case, ["packed", "hnd/16"], rounds=1):
        assert row.error == ""
        assert row.hk > 0


def test_a_layout_that_blocks_do_not_fit_is_a_failure_with_its_reason() -> None:
    (row,) = measure(TINY, ["cpu_attn_amx/24"], rounds=1)
    assert "24 tokens in a block" in row.error


def test_a_wrong_result_is_a_failure_without_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    right = attention._hk_call

    def scaled(kind: str, *tensors: torch.Tensor) -> Callable[[], torch.Tensor]:
        call = right(kind, *tensors)
        return (lambda: call() * 1.02) if kind == "packed" else call

    monkeypatch.setattr(attention, "_hk_call", scaled)
    wrong, good = measure(TINY, ["packed", "hnd/16"], rounds=1)
    assert wrong.error.startswith("differs from SDPA by 2.0e-02")
    assert math.isnan(wrong.hk)
    assert wrong.as_json()["hk"] is None
    assert good.error == ""
    assert good.hk > 0


def test_an_operator_that_raises_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError("query: dtype float32 is not served")

    monkeypatch.setattr(attention, "attention_prefill", refuse)
    (row,) = measure(TINY, ["packed"], rounds=1)
    assert row.error == "query: dtype float32 is not served"
    assert "1 failed" in TABLE.summary([row])


def test_candidates_alternate_and_every_other_round_runs_backwards() -> None:
    now, calls = [0.0], []

    def candidate(name: str, seconds: float) -> Callable[[], None]:
        def call() -> None:
            calls.append(name)
            now[0] += seconds

        return call

    timings = alternate(
        {"a": candidate("a", 1.0), "b": candidate("b", 3.0)}, rounds=3, clock=lambda: now[0]
    )
    assert calls[:4] == ["a", "a", "b", "b"]  # unmeasured
    assert calls[4:] == ["a", "b", "b", "a", "a", "b"]
    assert timings["a"].samples == (1.0, 1.0, 1.0)
    assert timings["b"].samples == (3.0, 3.0, 3.0)


def test_a_quick_call_is_repeated_within_a_sample_and_divided() -> None:
    now, calls = [0.0], [0]

    def quick() -> None:
        calls[0] += 1
        now[0] += 0.001

    timing = alternate({"quick": quick}, rounds=2, clock=lambda: now[0])["quick"]
    assert calls[0] == 2 + 2 * 20
    assert timing.samples == pytest.approx((0.001, 0.001))


def test_a_timing_is_its_median_not_its_mean_or_best() -> None:
    timing = Timing((1.0, 2.0, 100.0, 2.0, 3.0))
    assert timing.median == 2.0
    assert timing.spread == pytest.approx((3.0 - 2.0) / 2.0)
    assert math.isnan(Timing((5.0,)).spread), "one sample says nothing"


def test_losses_are_counted_beside_wins() -> None:
    win = Row(TINY, "packed", hk=2.0, sdpa=1.0, sdpa_prepared=1.0, matmul=4.0, spread=0.1)
    loss = Row(TINY, "packed", hk=1.0, sdpa=2.0, sdpa_prepared=1.0, matmul=4.0, spread=0.1)
    failed = Row(TINY, "packed", error="no")
    line = TABLE.summary([win, loss, failed])
    assert line == "1 wins, 1 losses, 1 failed; smallest ratio to SDPA 0.50"
    table = markdown(TABLE.headings, map(TABLE.cells, [win, loss, failed])).splitlines()
    assert len({line.count("|") for line in table}) == 1
    assert "failed: no" in table[-1]


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
    """Named by the flag that the user set."""
    monkeypatch.setattr(settings._cpu, "available_isas", lambda: ["avx2", "portable"])
    with pytest.raises(typer.BadParameter) as caught:
        settings.limit_isa(Isa.avx512)
    assert str(caught.value) == "--isa avx512: this processor has avx2, portable"
    monkeypatch.setattr(settings._cpu, "why_no_amx", lambda: "no leave")
    with pytest.raises(typer.BadParameter, match=r"--isa amx: .* avx2, portable \(no leave\)"):
        settings.limit_isa(Isa.amx)
