"""Who computes decode rows, and the plan of those that a graph captures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from hk_backend.engine.batch_plan import Batch, plan_capture
from hk_backend.engine.decode_rows import CACHE_BYTES, LENGTHS, REQUESTS, DecodeRows, batches
from hk_backend.engine.evidence import Decision, Kind
from hk_backend.routing.routes import routes
from hk_backend.terms.measurements import Times


def decision(keys: int, hk_wins_from: int) -> Decision:
    kind = Kind("decode", "vLLM", "cpu:avx512", f"bfloat16, {keys} keys", "CPU_ATTN")
    times = [
        Times(rows=rows, ours=1.0 if rows >= hk_wins_from else 4.0, theirs=2.0) for rows in REQUESTS
    ]
    return Decision(kind, tuple(times))


def test_hk_computes_what_it_wins_at_every_length() -> None:
    """One length that HK loses at a number of requests is enough for the engine to compute it."""
    short, long = LENGTHS
    rows = DecodeRows([decision(short, 1), decision(long, 8)], 4)
    assert f"{long} keys" in rows.why_not(1, 1)
    assert rows.why_not(8, 1) == rows.why_not(40, 4) == ""
    assert rows.why_not(8, 5) == "decode rows of 5 tokens, expected at most 4"
    routes.disable("decode", "a test")
    assert rows.why_not(8, 1) == "a test"


def test_batches_of_a_contest_fit_the_model_the_engine_and_the_memory() -> None:
    assert batches(10**6, 256, 1024) == tuple((keys, REQUESTS) for keys in LENGTHS)
    assert batches(100, 256, 1024) == ((100, REQUESTS),)
    assert batches(10**6, 8, 1024)[0] == (LENGTHS[0], REQUESTS[:2])
    large = CACHE_BYTES // LENGTHS[1]
    assert batches(10**6, 256, large)[1] == (LENGTHS[1], REQUESTS[:1])


def captured() -> Batch:
    """A padded batch of three rows in the engine's own tensors; the last one is empty now."""
    table = torch.zeros(3, 8, dtype=torch.int32)
    return Batch(
        np.array([0, 1, 2, 2], dtype=np.int32),
        np.array([5, 9, 0], dtype=np.int32),
        torch.tensor([5, 9, 0], dtype=torch.int32),
        lambda rows, longest: rows.of_rows(table),
        torch.tensor([0, 1, 2, 2], dtype=torch.int32),
    )


def test_a_capture_has_every_row_in_the_engine_s_own_tensors() -> None:
    batch = captured()
    plan = plan_capture(batch, 2)
    assert plan is not None
    assert plan.captured
    assert plan.decode_tokens == 6, "a replay may have tokens in each row"
    assert plan.decode is not None
    assert plan.decode.seq_lens is not None
    assert plan.decode.seq_lens.data_ptr() == batch.seq_lens.data_ptr()


@pytest.mark.parametrize("name", ["seq_lens", "query_start_loc", "block_table"])
def test_copies_are_not_captured(name: str) -> None:
    """Nobody updates them before a replay."""
    batch, wide = captured(), torch.zeros(3, 16, dtype=torch.int32)
    copied = {
        "seq_lens": batch.seq_lens.long(),
        "query_start_loc": torch.zeros(8, dtype=torch.int32)[::2],
        "block_table": lambda rows, longest: wide[:, ::2],
    }
    assert plan_capture(replace(batch, **{name: copied[name]}), 1) is None
