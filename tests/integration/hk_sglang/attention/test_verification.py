"""Batches in which SGLang's target model verifies drafts (TARGET_VERIFY), outside of graphs.

HK's decode computes chains, over all pools that it reads, and leaves trees to the parent.
tests/integration/engines/test_decode.py has what both engines share.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sglang.srt.speculative.dflash_info import DFlashVerifyInput
from sglang.srt.speculative.ngram_info import NgramVerifyInput

from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.integration.adapter import Environment
from tests.integration.hk_sglang.attention import engine
from tests.integration.hk_sglang.attention.batch import Batch, Server, drafts_of
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.expected import check_rows
from tests.integration.shared.attention.rows import DECODE, Row

TOKENS = 4
FP8 = torch.float8_e4m3fn
WINDOWS: dict[str, Any] = {"layers": [{}, {"sliding_window_size": 15}], "windows": (1,)}


@pytest.fixture
def decode(environment: Environment) -> Iterator[RouteCounters]:
    """Install the attention routes, with HK wherever it can; returns decode's counters."""
    environment(HK_EVIDENCE="ignore")
    with engine.routed("attention,decode"):
        yield routes.counters("decode")


def verifying(*cached: int, tokens: int = TOKENS) -> list[Row]:
    return [Row(tokens, each, verifies=True) for each in cached]


ROWS = verifying(30, 1, 44, 77)
VERIFIED = len(ROWS) * TOKENS


def batch_of(rows: list[Row], patch: pytest.MonkeyPatch | None = None, **facts: Any) -> Batch:
    """A batch of a server whose rows have as many drafts as these.

    Its parent computes nothing while `patch` lasts.
    """
    server = Server(drafts=rows[0].query - 1, **facts)
    if patch is not None:
        engine.without_parent(patch)
    return Batch(server, rows, "TARGET_VERIFY")


# -- chains, which HK computes


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("tokens", [1, 2, 16])
def test_chains(
    decode: RouteCounters, monkeypatch: pytest.MonkeyPatch, tokens: int, page_size: int
) -> None:
    """Each draft sees those before it, and the pool then has the keys of all."""
    rows = verifying(30, 1, 15, 16, 100, tokens=tokens)
    batch_of(rows, monkeypatch, page_size=page_size).check()
    assert decode.served == Tally(1, 5 * tokens)
    assert not decode.fallbacks
    assert not routes.counters("attention").fallbacks


def test_a_bound_of_the_lengths(decode: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    """DFLASH's worker counts the drafts on the host, and a table has no room for more of them."""
    batch = batch_of(verifying(30, 252), monkeypatch)
    batch.metadata.seq_lens_cpu = batch.metadata.seq_lens_cpu + TOKENS
    batch.check()
    assert decode.served == Tally(1, 2 * TOKENS)


@pytest.mark.parametrize("page_size", [1, 16])
def test_windows_with_a_pool_of_their_own(
    decode: RouteCounters, monkeypatch: pytest.MonkeyPatch, page_size: int
) -> None:
    batch = batch_of(ROWS, monkeypatch, page_size=page_size, **WINDOWS)
    full, window = batch.run()
    check_rows(full, batch.made(0))
    check_rows(window, batch.made(1), sliding_window=16)
    with pytest.raises(AssertionError):
        check_rows(window, batch.made(1), sliding_window=8)
    for index in range(2):
        batch._check_pool(index)
    assert decode.served == Tally(2, 2 * VERIFIED)


def test_sinks(decode: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=torch.bfloat16)
    batch = batch_of(ROWS, monkeypatch)
    (found,) = batch.run(sinks=sinks)
    check_rows(found, batch.made(), sinks=sinks.float())
    assert decode.served == Tally(1, VERIFIED)


def test_a_pool_of_fp8(decode: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drafts' own keys are read from the pool, too, as those of decode rows are."""
    batch = batch_of(ROWS, monkeypatch, kv_dtype=FP8)
    (found,) = batch.run()
    stored = [
        (query, key.to(FP8).float(), value.to(FP8).float()) for query, key, value in batch.made()
    ]
    check_rows(found, stored)
    with pytest.raises(AssertionError):
        check_rows(found, batch.made())
    assert decode.served == Tally(1, VERIFIED)


def test_the_mask_of_a_chain(decode: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    """`triton` keeps EAGLE's mask in its metadata. A chain's is the causal one."""
    batch = batch_of(ROWS, monkeypatch)
    batch.server.backend.init_forward_metadata(batch.metadata)
    batch.server.backend.forward_metadata = SimpleNamespace(custom_mask=torch.ones(1))
    check_rows(batch.call(), batch.made())
    assert decode.served == Tally(1, VERIFIED)


# -- the parent's batches


@pytest.mark.parametrize(
    ("drafts", "why"),
    [
        (drafts_of(TOKENS, topk=2), "a tree of drafts"),
        (
            NgramVerifyInput(custom_mask=torch.ones(1), draft_token_num=TOKENS),
            "a tree of drafts",
        ),
        (SimpleNamespace(draft_token_num=TOKENS), "drafts of SimpleNamespace"),
        (
            DFlashVerifyInput(
                torch.zeros(1), torch.zeros(1), TOKENS, ragged_verify_layout=SimpleNamespace()
            ),
            "adaptive verification",
        ),
    ],
    ids=["EAGLE", "NGRAM", "another plugin's", "DSPARK"],
)
def test_other_drafts(decode: RouteCounters, drafts: Any, why: str) -> None:
    batch = batch_of(ROWS)
    batch.metadata.spec_info = drafts
    batch.check()
    fell_back(decode, why, VERIFIED)
    assert not routes.counters("attention").fallbacks


def test_dflash_is_a_chain(decode: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = batch_of(ROWS, monkeypatch)
    batch.metadata.spec_info = DFlashVerifyInput(torch.zeros(1), torch.zeros(1), TOKENS)
    batch.check()
    assert decode.served == Tally(1, VERIFIED)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"seq_lens_cpu": None}, "no sequence lengths on the host"),
        ({"tbo_parent_token_range": (0, 3)}, "two-batch overlap"),
    ],
)
def test_other_batches(decode: RouteCounters, changes: dict[str, Any], why: str) -> None:
    batch = batch_of(ROWS)
    vars(batch.metadata).update(changes)
    batch.check()
    fell_back(decode, why, VERIFIED)


# -- decode rows beside prompts


def test_a_mixed_batch_without_a_prompt_over_two_pools(
    decode: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts of one token are not worth a prefill, so that decode has the whole batch."""
    batch = Batch(Server(**WINDOWS), [Row(1), DECODE], "MIXED")
    engine.without_parent(monkeypatch)
    full, window = batch.run()
    check_rows(full, batch.made(0))
    check_rows(window, batch.made(1), sliding_window=16)
    assert decode.served == Tally(2, 2 * 2)
