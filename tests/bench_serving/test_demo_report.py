"""The report of `make demo`: machine, warnings, losses, and the best stock result."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

from rich.console import Console

from bench_serving.demo_report import loss_lines, print_report
from bench_serving.demo_results import Results
from bench_serving.engines import ENGINES
from hk_backend.engine.evidence import SLOWER

VLLM = ENGINES["vllm"]


def found(stock: dict[str, float], hk: dict[str, float], **changes: Any) -> Results:
    """Results with these prompt tokens per second."""
    rates = {"stock": stock, "hk": hk}
    times = {b: {n: 1024000 / rate for n, rate in each.items()} for b, each in rates.items()}
    machine = {
        "cpu": "AMD EPYC 1234",
        "cores": 2,
        "versions": {"vllm": "0.32.0", "torch": "2.13.0"},
    }
    results = Results("model", {"vllm": "0.32.0"}, "cpu:avx512_bf16", machine, tokens_equal=True)
    results.max_logprob_diff = 1e-5
    results.answers = [{"question": "?", "answer": "!"}] * 4
    results.same_answers = {"fp32": 4, "bf16": 3}
    results.prefill_tok_s, results.ttft_ms = rates, times
    results.tpot_ms = {"stock": {"fp32": 30.0, "bf16": 20.0}, "hk": {"fp32": 20.0, "bf16": 16.0}}
    results.routes = {"attention": {"on": True, "why": "", "routed_share": 1.0}}
    results.calls, results.tokens = {"attention": 30}, {"attention": 900}
    for name, value in changes.items():
        setattr(results, name, value)
    return results


STOCK, HK = {"fp32": 304.0, "bf16": 100.0}, {"fp32": 300.0, "bf16": 257.0}


def printed(results: Results) -> str:
    console = Console(record=True, width=100, file=StringIO())
    print_report(results, VLLM, 1024, 5, console)
    return console.export_text()


def test_the_report_stands_alone() -> None:
    """The report names machine, versions and units. A warning stands below the table. HK's 2.57
    times in bfloat16 is a loss against stock's float32, and has a row and a line."""
    said = printed(found(STOCK, HK, warnings=["this machine is busy (load 5.0 on 2 cores)"]))
    for each in ("AMD EPYC 1234", "2 threads", "cpu:avx512_bf16", "vllm 0.32.0", "torch 2.13.0"):
        assert each in said
    for unit in ("tokens/s", "ms", "medians of 5 rounds", "1024 tokens"):
        assert unit in said
    for row in ("time per output token │ 30.0 ms │ 20.0 ms │ 1.50x", "20.0 ms │ 16.0 ms │ 1.25x"):
        assert row in re.sub(" +", " ", said)
    lines = said.splitlines()
    (caution,) = [n for n, line in enumerate(lines) if line.startswith("Caution: this machine")]
    (versions,) = [n for n, line in enumerate(lines) if "torch 2.13.0" in line]
    assert 0 < caution - versions <= 2
    (row,) = [line for line in lines if "fastest" in line and "│" in line]
    for cell in ("304 (float32)", "300 (float32)", "0.99x"):
        assert cell in row
    assert "HK (float32) runs at 0.99 of stock's speed (float32)" in said
    assert "float32 equal (they must be)" in said
    assert "bfloat16: 3 of 4 answers are equal" in said


def test_a_route_that_computed_nothing_has_no_row() -> None:
    """The table shows shares of what HK computed; the reasons stand below it."""
    nothing = {"on": True, "why": "", "routed_share": 0.0}
    results = found(STOCK, HK, layers_left={f"{SLOWER}: decode bfloat16, 512 keys: 1 row": 30})
    results.routes["decode"] = nothing
    results.calls["decode"] = results.tokens["decode"] = 0
    said = printed(results)
    [table, below] = said.split("By vLLM", 1)
    assert "attention" in table
    assert "decode" not in table
    assert "decode bfloat16, 30 layers" in below


def test_many_reasons_become_a_line_for_each_dtype() -> None:
    left = {
        f"{SLOWER}: linear {dtype} {n}x64: 32 rows: HK 2 us, the engine 1 us": 30
        for dtype in ("fp32", "bf16")
        for n in range(9)
    }
    said = printed(found(STOCK, HK, layers_left={**left, "a weight in torch.int8": 2}))
    assert [line for line in said.splitlines() if line.startswith(("By vLLM", "  linear"))] == [
        "By vLLM, 2 layers: a weight in torch.int8",
        "By vLLM, which was measured to be faster at them (hk-backend status has all):",
        "  linear fp32, 270 layers, such as of 0x64: 32 rows: HK 2 us, the engine 1 us",
        "  linear bf16, 270 layers, such as of 0x64: 32 rows: HK 2 us, the engine 1 us",
    ]


def test_each_loss_is_explained_in_one_line() -> None:
    """Each loss is explained in one line; a win has none."""
    assert list(loss_lines(found(STOCK, {"fp32": 400.0, "bf16": 257.0}))) == []
    slow = {"fp32": 300.0, "bf16": 70.0}
    noisy = found(STOCK, slow, spread={"fp32": 0.05, "bf16": 0.05})
    noisy.shares = {"fp32": {"linear": 0.0}, "bf16": {"linear": 0.9}}
    first, second = loss_lines(noisy)
    assert first.startswith("float32, prefill, 0.99x: no loss that this run can tell")
    assert second.startswith("bfloat16, prefill, 0.70x: a loss.")
    assert "hk-backend tune" in second
    noisy.spread = {}
    noisy.shares["bf16"] = {"linear": 0.1}
    first, second = loss_lines(noisy)
    assert "most layers are the engine's own" in first
    assert "most layers are the engine's own" in second


def test_a_slower_decode_is_a_loss_of_its_own() -> None:
    """The share of decode rows explains decode's loss; it explains none of prefill's."""
    slow = found(STOCK, {"fp32": 400.0, "bf16": 257.0})
    slow.tpot_ms["hk"]["fp32"] = 40.0
    slow.shares = {"fp32": {"linear": 0.1, "decode": 0.9}}
    (line,) = loss_lines(slow)
    assert line.startswith("float32, decode, 0.75x: a loss.")
    slow.decode_spread = {"fp32": 0.3}
    (line,) = loss_lines(slow)
    assert line.startswith("float32, decode, 0.75x: no loss that this run can tell")
    slow.tpot_ms["hk"]["fp32"], slow.prefill_tok_s["hk"]["fp32"] = 30.0, 200.0
    (line,) = loss_lines(slow)
    assert "prefill, 0.66x: most layers are the engine's own" in line
