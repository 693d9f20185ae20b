"""Engines of which there is one: stock, split over ranks, over caches of other forms, and with
something in HK's way; and engines that serve a kind of traffic as transformers and SGLang's own
plain attention do."""

from __future__ import annotations

import pytest
import torch

from tests.integration.hk_sglang.e2e.catalogue import FLOAT32, HALF, Case
from tests.integration.shared.e2e.case import assert_as_near, assert_equal, assert_met
from tests.integration.shared.e2e.compare import (
    assert_not_loaded,
    assert_routed,
    assert_true_logprobs,
)
from tests.integration.shared.e2e.engine import Checkpoint, Reader
from tests.integration.shared.e2e.narrow_cache import assert_faults_seen, assert_over
from tests.integration.shared.e2e.scenario import Answer, RoundResult, ScenarioResult
from tests.integration.shared.e2e.singles import (
    WORDS,
    assert_checked,
    assert_long,
    assert_ranks_measured,
    assert_serves_and_says_why,
    assert_stock,
)

pytestmark = pytest.mark.engine_proof


@pytest.mark.engine("without-plugin", "backend-unset", "backend-0")
@pytest.mark.parametrize("name", ["backend-unset", "backend-0"])
def test_without_hk_backend(name: str, served: Reader) -> None:
    """SGLang is stock, bit for bit, and nothing of HK is even imported."""
    assert_stock(served(name), served("without-plugin"))


# -- HK must step aside

REASONS = {
    "decode-flag": ["decode_attention_backend: HK computes prefill only, using SGLang's own"],
    "other-flag": ["the server's own choice of torch_native for prefill"],
    **WORDS,
    "engine-unknown": ["AttentionBackend.init_forward_metadata", "batch", "forward_batch"],
}


@pytest.mark.engine(*REASONS)
@pytest.mark.parametrize("name", REASONS)
def test_serves_and_says_why(name: str, served: Reader, checkpoint: Checkpoint) -> None:
    assert_serves_and_says_why(name, REASONS[name], served(name), checkpoint("tiny-64"))


@pytest.mark.engine("strict", "strict-bad-backend")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("strict", "hk_backend._cpu cannot be loaded"),
        ("strict-bad-backend", "HK_BACKEND='atention'"),
    ],
)
def test_strict_stops_the_engine(name: str, why: str, served: Reader) -> None:
    """HK_STRICT=1: what would fall back is an error that says why, though SGLang swallows those
    of plugins."""
    engine = served(name)
    assert engine.exit_code != 0 or engine.error
    assert engine.lines("HK_STRICT=1", why), engine.log


@pytest.mark.engine("checked")
def test_shadow_check(served: Reader, checkpoint: Checkpoint) -> None:
    assert_checked(served("checked"), checkpoint("tiny-64"), "switched off")


# -- processes and caches


@pytest.mark.engine("tensor-parallel", "hnd")
@pytest.mark.parametrize(("name", "ranks"), [("tensor-parallel", 2), ("hnd", 1)])
def test_long(name: str, ranks: int, served: Reader, checkpoint: Checkpoint) -> None:
    assert_long(served(name), ranks, checkpoint("tiny-64"))


@pytest.mark.engine("measured-ranks")
def test_ranks_that_measure(served: Reader, checkpoint: Checkpoint) -> None:
    assert_ranks_measured(served, checkpoint("tiny-64"))


DTYPES = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


@pytest.mark.engine(*(f"{dtype}-{side}" for dtype in DTYPES for side in ("hk", "stock")))
@pytest.mark.parametrize("dtype", DTYPES)
def test_fp8(dtype: str, served: Reader, checkpoint: Checkpoint) -> None:
    """Over a KV cache narrower than the model: HK's answers, and SGLang's own, to chunks and to a
    cached prefix are those of attention over its codes; then a fault that shows."""
    found, expected = served(f"{dtype}-hk").only, served(f"{dtype}-stock").only
    assert_not_loaded(expected)
    assert_routed(found)
    truth = checkpoint("tiny-64")
    for rounds in (found.rounds, expected.rounds):
        chunks, prefix, cached, _ = rounds
        assert all(answer.cached_tokens >= 256 for answer in cached.answers)
        assert_over(DTYPES[dtype], answers(chunks, prefix, cached), truth)
    chunks = found.rounds[0]
    assert_faults_seen(DTYPES[dtype], chunks.answers, truth)
    with pytest.raises(AssertionError, match="log-probability"):
        assert_true_logprobs(chunks.answers, truth)
    with pytest.raises(AssertionError, match="median error"):
        assert_over(DTYPES[dtype], answers(found.rounds[-1]), truth)


def answers(*rounds: RoundResult) -> list[Answer]:
    return [answer for item in rounds for answer in item.answers]


# -- traffic of each kind


KINDS = {"whole": ("whole", "prefix"), "retracted": ("preempted",)}
"""What a kind of traffic is there for, if not for chunks."""


def answered(case: Case, served: Reader) -> ScenarioResult:
    """With HK, which met the traffic."""
    found = served(f"hk-{case}").only
    for kind in KINDS.get(case.kind, ("chunked",)):
        assert_met(kind, found)
    return found


@pytest.mark.parametrize("case", FLOAT32, ids=str)
def test_float32(case: Case, served: Reader, checkpoint: Checkpoint) -> None:
    tokens_only = 0 if case.kind in KINDS else 1
    assert_equal(answered(case, served), checkpoint(case.model), tokens_only)


@pytest.mark.held
@pytest.mark.parametrize("case", HALF, ids=str)
def test_half_precision(case: Case, served: Reader, checkpoint: Checkpoint) -> None:
    stock = served(f"stock-{case}").only
    assert_as_near(answered(case, served), stock, checkpoint(case.model))
