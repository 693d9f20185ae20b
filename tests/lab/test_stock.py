"""The comparison with stock's kernels: batches, layers, errors, rows and the text of a document."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hk_backend.lab import document
from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock import attention, batches, cases, summary
from hk_backend.lab.stock.attention import StockAttention
from hk_backend.lab.stock.batches import ROWS, SPLIT, Batch
from hk_backend.lab.stock.cases import Case
from hk_backend.lab.stock.comparison import RATIO, TABLE, Compared, Comparison, Side
from hk_backend.lab.stock.layers import FORMATS, Layer
from hk_backend.lab.stock.linear import StockLinear
from hk_backend.lab.stock.ours import OurAttention, OurLinear
from hk_backend.lab.stock.vllm_attention import prefix_work, unified_work
from hk_backend.reference import attention as reference

BATCH = Batch([37, 5], [37, 90], 4, 2, 64)
FEATURES = {"plain": {}, "window": {"window": 20}, "sinks": {"sinks": True}, "fp8": {"fp8": True}}


@pytest.mark.parametrize("layout", [ROWS, SPLIT])
@pytest.mark.parametrize("features", FEATURES)
def test_a_batch_s_error_is_of_its_own_definition(layout: str, features: str) -> None:
    """The rounded definition is right, a shifted one is not, and NaN counts as infinite."""
    given = replace(BATCH, **FEATURES[features]).arguments(layout)
    expected, _ = reference.attention_prefill(given)
    assert not expected.isnan().any()
    assert batches.error_of(expected.bfloat16(), given) <= 0.5
    assert batches.error_of(expected.roll(1, 0), given) > 10
    expected[3, 1, 7] = torch.nan
    assert batches.error_of(expected, given) == math.inf


def test_both_layouts_hold_the_same_batch() -> None:
    rows, split = (reference.attention_prefill(BATCH.arguments(each)) for each in (ROWS, SPLIT))
    assert torch.equal(rows[0], split[0])


def test_the_flops_of_a_batch_count_the_keys_that_each_query_sees() -> None:
    one = 4.0 * BATCH.heads * BATCH.head_size
    pairs = sum(range(1, 38)) + sum(range(86, 91))
    assert BATCH.flops == one * pairs
    assert replace(BATCH, window=10).flops == one * (sum(range(1, 10)) + 28 * 10 + 5 * 10)


@pytest.mark.parametrize("format", FORMATS)
def test_a_layer_s_error_is_of_its_own_definition(format: str) -> None:
    operands = Layer(format, 20, 144, 256).operands()
    x, weight = operands.values
    expected = x @ weight.T
    assert operands.error_of(expected.bfloat16()) <= 0.5
    assert operands.error_of(expected.roll(1, 1)) > 10
    expected[3, 7] = torch.nan
    assert operands.error_of(expected) == math.inf


@pytest.mark.parametrize("format", FORMATS)
def test_our_product_is_right_and_its_time_grows_with_the_work(format: str) -> None:
    ours = OurLinear("gfx950")
    assert not ours.refuses(Layer(format, 20, 144, 256))
    assert ours.error(Layer(format, 20, 144, 256)) <= 1
    short, long = (ours.microseconds(Layer(format, 512, 4096, k)) for k in (1024, 4096))
    assert 0 < short < long < 8 * short


def test_our_attention_is_right_and_its_time_grows_with_the_work() -> None:
    ours = OurAttention("gfx950", ROWS)
    assert not ours.refuses(BATCH)
    assert ours.error(BATCH) <= 1
    short, long = (
        ours.microseconds(Batch.prompts(2, tokens, 16, 2, 64)) for tokens in (1024, 2048)
    )
    assert 0 < short < long < 8 * short
    assert "head_size" in ours.refuses(replace(BATCH, head_size=512))


def test_work_counts_the_steps_over_the_keys_of_each_workgroup() -> None:
    """Two tokens of eight heads fill TRITON_ATTN's 16 rows, and a step takes 32 keys; ROCM_ATTN's
    workgroups have 128 tokens, and a step 64 keys."""
    batch = Batch([5, 130], [5, 200], 8, 1, 64)
    work = unified_work(batch, (135 // 2 + 2, 1, 1))
    assert work[:4].tolist() == [1, 1, 1, 3]  # the second request has 70 keys before its first two
    assert work[3 + 64] == 7
    assert work[3 + 65] == 0
    assert prefix_work(batch, (2, 8, 2)).reshape(2, 8, 2)[:, 0].tolist() == [[1, 4], [0, 4]]
    windowed = replace(batch, window=32)
    assert unified_work(windowed, (69, 1, 1)).max() == 2
    assert prefix_work(windowed, (2, 8, 2)).max() == 4  # it goes through hidden keys, too


def test_steps_grow_with_the_keys_before_each_workgroup() -> None:
    given = attention.steps_of(BATCH, torch.arange(0, 37, 8).numpy(), 8, 37, 37, 16)
    assert given.tolist() == [1, 1, 2, 2, 3]


def row(ratio: float, name: str = "llama8b n1024", **more: object) -> Compared:
    of = Batch.prompts(1, 1024, 8, 1, 64) if " n" in name else Layer("bf16", 16, 64, 64)
    sides = {"theirs": Side(10 * ratio, 0.5), "ours": Side(10, 0.5)}
    return Compared(Case(name, of), "vLLM TRITON_ATTN", **{**sides, **more})  # type: ignore[arg-type]


def test_a_row_has_a_ratio_only_where_both_results_are_right() -> None:
    assert row(3.0).ratios == {RATIO: 3}
    wrong = row(3.0, theirs=Side(30, 1.5))
    assert math.isnan(wrong.ratios[RATIO])
    assert wrong.as_json()["ratio"] is None
    assert wrong.as_json()["stock_error"] == 1.5
    kept = row(3.0, ours=None, kept="too large")
    assert math.isnan(kept.ratios[RATIO])
    assert "left to stock: too large" in TABLE.cells(kept)
    assert TABLE.summary([row(3.0), row(0.5), wrong, kept]) == (
        "1 wins, 1 losses, 0 failed, 2 without a ratio; smallest ratio to stock 0.50"
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (0.5, 0.5, ""),
        (2.0, 0.5, "HK's error is 2.00 times what bf16 allows"),
        (
            0.5,
            ValueError("kernel 'k' needs waves of 32 lanes"),
            "kernel 'k' needs waves of 32 lanes",
        ),
        (0.5, RuntimeError("lds-race: here\nlds-race: there"), "lds-race: here"),
    ],
)
def test_a_wrong_result_or_a_kernel_that_cannot_run_fails_its_row(
    ours: float, theirs: float | Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def error(kernel: object, of: object) -> float:
        if isinstance(theirs, Exception):
            raise theirs
        return theirs

    monkeypatch.setattr(StockLinear, "error", error)
    monkeypatch.setattr(OurLinear, "error", lambda kernel, of: ours)
    for kernel in (StockLinear, OurLinear):
        monkeypatch.setattr(kernel, "microseconds", lambda kernel, of: 1.0)
    stock = StockLinear(TritonGpu("gfx950"), "stock", ("bf16",), lambda operands: operands.x)
    cases = [Case("a layer", Layer("bf16", 16, 64, 64))]
    (found,) = Comparison("gfx950", cases, [stock]).run(lambda text: None)
    assert found.error == said
    assert math.isnan(found.ratios[RATIO]) == bool(said)


def test_stock_s_kernel_computes_the_decodes_of_a_mixed_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stock takes the whole step; HK's time has its own part and stock's time for the decodes."""
    mixed = Batch((1, 40, 1, 7), (90, 40, 30, 80), 4, 2, 64)
    assert (mixed.prefill.queries, mixed.prefill.keys) == ((40, 7), (40, 80))
    assert mixed.decode is not None
    assert (mixed.decode.queries, mixed.decode.keys) == ((1, 1), (90, 30))
    assert mixed.prefill.decode is None
    times = {mixed: 10.0, mixed.prefill: 3.0, mixed.decode: 2.0}
    for kernel in (StockAttention, OurAttention):
        monkeypatch.setattr(kernel, "microseconds", lambda kernel, of: times[of])
    monkeypatch.setattr(OurAttention, "refuses", lambda kernel, of: "")
    monkeypatch.setattr(OurAttention, "error", lambda kernel, of: 0.25)
    monkeypatch.setattr(
        StockAttention, "error", lambda kernel, of: 0.75 if 1 in of.queries else 0.5
    )
    stock = StockAttention(TritonGpu("gfx950"), "stock", ROWS, print, prefix_work, len)
    (found,) = Comparison("gfx950", [Case("m mixed", mixed)], [stock]).run(lambda text: None)
    assert found.theirs == Side(10.0, 0.75)
    assert found.ours == Side(5.0, 0.75)


def test_the_text_of_a_document(tmp_path: Path) -> None:
    rows = [
        row(0.5),
        row(2.0, "llama8b n4096"),
        row(1.5, "llama8b-qkv bf16 m16"),
        row(3.0, "llama8b-o bf16 m16"),
        row(1.0, "gpt n1024", theirs=Side(3, 2.0)),
        row(1.0, "gpt n4096", ours=None, theirs=None, error="lds-race: why; where"),
    ]
    text = summary.text_of(rows)
    assert text.startswith("3 rows ahead, 1 behind. Losses: llama8b n1024, vLLM TRITON_ATTN: ")
    assert "= **0.50**" in text
    assert "gpt, vLLM TRITON_ATTN: stock's error is 2.0 times what bf16 allows" in text
    assert "gpt, vLLM TRITON_ATTN: lds-race: why" in text
    assert "| bf16 | vLLM TRITON_ATTN | 1.50 to 3.00 |" in text
    file = tmp_path / "document.md"
    ((part, _),) = summary.parts_of(rows).items()
    marks = summary.MARKS[part]
    file.write_text(f"before\n{marks[0]}old\n{marks[1]}after\n")
    document.put_into(file, marks, text)
    assert file.read_text() == f"before\n{marks[0]}\n{text}\n\n{marks[1]}after\n"


def test_products_of_mx_beside_vllm_are_a_part_of_their_own() -> None:
    mx = Case("llama8b-qkv mxfp4 m16", Layer("mxfp4", 16, 64, 64))
    stocks = ("AITER preshuffled", "Triton tl.dot_scaled", "vLLM mxfp8_linear")
    rows = [row(2.0), *(Compared(mx, stock) for stock in stocks)]
    parts = summary.parts_of(rows)
    assert {part: len(of) for part, of in parts.items()} == {"vLLM": 1, "AITER": 1, "vLLM MX": 2}
    assert parts.keys() <= summary.MARKS.keys()


def test_bytes_count_codes_and_scales_once() -> None:
    results = 2 * 16 * 96
    assert Layer("bf16", 16, 96, 64).bytes == 2 * 112 * 64 + results
    assert Layer("fp8_block", 16, 96, 64).bytes == 112 * 64 + results
    assert Layer("mxfp4", 16, 96, 64).bytes == 112 * (32 + 2) + results
    assert Layer("mxfp4_weight_only", 16, 96, 64).bytes == 2 * 16 * 64 + 96 * (32 + 2) + results


def test_cases_are_chosen_by_words() -> None:
    assert [case.name for case in cases.chosen_cases("llama8b n4096,d64 ragged")] == [
        "llama8b n4096",
        "d64 ragged",
    ]
    with pytest.raises(ValueError, match="'nonsense' is no case; words: llama8b, n512"):
        cases.chosen_cases("llama8b n4096,nonsense")


@pytest.mark.parametrize("case", cases.chosen_cases("chunk,mixed,m512"), ids=lambda case: case.name)
def test_small_cases_compute_the_same_with_few_tokens(case: Case) -> None:
    small, of = case.small, case.of
    if isinstance(of, Layer):
        assert isinstance(small, Layer)
        assert small.format == of.format
        assert small.flops < 1e9
        return
    assert isinstance(small, Batch)
    assert small.heads // small.kv_heads == of.heads // of.kv_heads
    assert (small.head_size, small.sinks, small.soft_cap) == (of.head_size, of.sinks, of.soft_cap)
    assert small.fp8 == of.fp8
    assert bool(small.window) == bool(of.window)
    assert bool(small.decode) == bool(of.decode)
    assert sum(small.queries) < 200
