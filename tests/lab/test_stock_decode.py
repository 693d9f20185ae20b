"""Decode steps in the comparison with stock's kernels: HK's side, work, rows and the document."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from hk_backend import ops
from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock import cases, decode, summary
from hk_backend.lab.stock.attention import StockAttention
from hk_backend.lab.stock.batches import ROWS, SPLIT, Batch
from hk_backend.lab.stock.cases import DECODED, Case
from hk_backend.lab.stock.comparison import RATIO, TABLE, Compared, Comparison, Side
from hk_backend.lab.stock.decode import Step, StockDecode
from hk_backend.lab.stock.ours import OurAttention
from hk_backend.lab.stock.ours_decode import OurDecode
from hk_backend.lab.stock.vllm_attention import prefix_work
from hk_backend.lab.stock.vllm_decode import unified_work
from hk_backend.reference import attention as reference
from hk_backend.terms.attention_arguments import AttentionArguments

BATCH = Batch((1, 1, 1), (90, 5, 37), 8, 2, 64)
FEATURES: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"window": 20},
    "sinks": {"sinks": True},
    "fp8": {"fp8": True},
    "cap": {"soft_cap": 30.0, "head_size": 128},
}
CASE = Case("llama8b decode 32x8k", BATCH)


@pytest.mark.parametrize("layout", [ROWS, SPLIT])
@pytest.mark.parametrize("features", FEATURES)
def test_our_decode_is_right(layout: str, features: str) -> None:
    batch = replace(BATCH, **FEATURES[features])
    ours = OurDecode("gfx950", layout)
    assert not ours.refuses(batch)
    assert ours.error(batch) <= 1


def test_our_time_grows_with_the_work_and_other_head_sizes_are_refused() -> None:
    ours = OurDecode("gfx950", ROWS)
    short, long = (
        ours.microseconds(replace(BATCH, queries=(1,) * 64, keys=(keys,) * 64))
        for keys in (4096, 8192)
    )
    assert 0 < short < long < 3 * short
    assert "head_size" in ours.refuses(replace(BATCH, head_size=512))


@pytest.mark.parametrize("off", [-1, 1])
def test_a_wrong_length_in_our_kernel_is_seen(off: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a key too few is an error, and one too many is a NaN."""
    right = ops.attention_decode

    def stale(query: torch.Tensor, *, seq_lens: torch.Tensor, **given: Any) -> Any:
        return right(query, seq_lens=seq_lens + off, **given)

    monkeypatch.setattr(ops, "attention_decode", stale)
    assert OurDecode("gfx950", ROWS).error(BATCH) > 1


def stock(by: Callable[[AttentionArguments], torch.Tensor], **more: Any) -> StockDecode:
    """A kernel that writes what `by` returns."""

    def prepare(given: AttentionArguments) -> Step:
        return Step(lambda: given.out.copy_(by(given)), lambda grid: np.ones(math.prod(grid)))  # type: ignore[arg-type,return-value]

    return StockDecode(TritonGpu("gfx950"), "vLLM stock", ROWS, prepare, **more)


def defined(given: AttentionArguments) -> torch.Tensor:
    return reference.attention_prefill(given)[0].bfloat16()


def without_the_last_key(given: AttentionArguments) -> torch.Tensor:
    assert given.seq_lens is not None
    return defined(replace(given, seq_lens=given.seq_lens - 1))


@pytest.fixture
def _timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """All kernels take a time that nobody models, and HK's results are right."""
    monkeypatch.setattr(StockDecode, "microseconds", lambda kernel, of: 30.0)
    monkeypatch.setattr(OurDecode, "microseconds", lambda kernel, of: 10.0)
    monkeypatch.setattr(OurDecode, "error", lambda kernel, of: 0.5)


@pytest.mark.usefixtures("_timed")
def test_a_row_has_a_ratio_only_where_both_results_are_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right, wrong = (stock(by) for by in (defined, without_the_last_key))
    rows = Comparison("gfx950", [CASE], [wrong, right]).run(lambda text: None)
    assert [row.ratios[RATIO] for row in rows] == pytest.approx([3.0, math.nan], nan_ok=True)
    assert right.error(BATCH) <= 0.5
    assert wrong.error(BATCH) > 1
    monkeypatch.setattr(OurDecode, "error", lambda kernel, of: 2.0)
    (row,) = Comparison("gfx950", [CASE], [right]).run(lambda text: None)
    assert row.error == "HK's error is 2.00 times what bf16 allows"
    assert math.isnan(row.ratios[RATIO])


@pytest.mark.usefixtures("_timed")
def test_kernels_take_either_decode_steps_or_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StockAttention, "microseconds", lambda kernel, of: 30.0)
    monkeypatch.setattr(StockAttention, "error", lambda kernel, of: 0.5)
    monkeypatch.setattr(OurAttention, "refuses", lambda kernel, of: "not asked here")
    prefill = StockAttention(TritonGpu("gfx950"), "prefill", ROWS, print, prefix_work, len)
    lacking = stock(defined, lacks=lambda batch: "no")
    prompts = Case("llama8b n512", Batch((8,), (8,), 8, 2, 64))
    both = Comparison("gfx950", [CASE, prompts], [prefill, lacking, stock(defined)])
    rows = {(row.case.name, row.stock) for row in both.run(lambda text: None)}
    assert rows == {(CASE.name, "vLLM stock"), ("llama8b n512", "prefill")}


@pytest.mark.usefixtures("_timed")
def test_a_kernel_that_is_not_run_has_a_row_that_says_why() -> None:
    compiled = stock(defined, elsewhere=lambda batch: "it decodes in compiled C++")
    (row,) = Comparison("gfx950", [CASE], [compiled]).run(lambda text: None)
    assert (row.theirs, row.ours, row.error) == (None, None, "")
    assert row.as_json()["elsewhere"] == "it decodes in compiled C++"
    assert "not run: it decodes in compiled C++" in TABLE.cells(row)
    assert "llama8b decode, vLLM stock: it decodes in compiled C++." in summary.text_of([row])


def test_work_counts_the_keys_of_each_workgroup() -> None:
    """Eight rows of two heads in four blocks: a request's own, and those that stay empty."""
    given = BATCH.arguments(ROWS)
    whole = unified_work(given, (6, 2, 1)).reshape(2, 6)
    assert whole[0].tolist() == whole[1].tolist() == [90, 5, 37, 0, 0, 0]
    parts = unified_work(given, (6, 2, 4)).reshape(4, 2, 6)[:, 0, :3]
    assert parts.T.tolist() == [[32, 32, 26, 0], [5, 0, 0, 0], [16, 16, 5, 0]]
    assert unified_work(given, (3, 8, 1)).tolist() == [1] * 24
    split = decode.in_parts(np.array([90, 5]), np.array([64, 64]), 3)
    assert split.T.tolist() == [[64, 26, 0], [5, 0, 0]]


@pytest.mark.parametrize("case", cases.chosen_cases("decode"), ids=lambda case: case.name)
def test_small_steps_leave_an_engine_s_choices_as_they_are(case: Case) -> None:
    small, of = case.small, case.of
    assert isinstance(small, Batch)
    assert isinstance(of, Batch)
    assert small.is_decode
    assert of.is_decode
    assert replace(small, queries=of.queries, keys=of.keys) == of
    assert (len(small.queries) > 16) == (len(of.queries) > 16)
    assert sum(small.keys) < 5000


def compared(model: str, step: str, ratio: float, name: str = "vLLM TRITON_ATTN") -> Compared:
    requests, keys = DECODED[step]
    batch = Batch((1,) * requests, (keys,) * requests, 32, 8, 128)
    sides = Side(10.04, 0.5), Side(10.04 * ratio, 0.5)
    return Compared(Case(f"{model} decode {step}", batch), name, sides[1], sides[0])


def test_decode_steps_are_a_part_of_the_document_in_microseconds() -> None:
    rows = [compared("llama8b", "1x128k", 0.5), compared("llama8b", "1x8k", 2.0)]
    rows += [compared("llama8b", "1x8k", 3.0, "SGLang triton, splits")]
    parts = summary.parts_of(rows)
    assert list(parts) == ["vLLM decode", "SGLang decode"]
    assert parts.keys() <= summary.MARKS.keys()
    text = summary.text_of(parts["vLLM decode"])
    loss = "llama8b decode 1x128k, vLLM TRITON_ATTN: 10.0 / 5.0, **0.50** us"
    assert text.startswith(f"1 rows ahead, 1 behind. Losses: {loss}")
    assert "| stock | 1x8k | 1x128k |" in text
    assert "| llama8b | vLLM TRITON_ATTN | 10.0 / 20.1, 2.00 | 10.0 / 5.0, **0.50** |" in text
    assert "TFLOP/s" not in text
