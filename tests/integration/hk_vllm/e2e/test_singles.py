"""Engines of which there is one: stock, spawned, split over ranks, under torch.compile, and with
something in HK's way; and engines that serve a kind of traffic."""

from __future__ import annotations

import pytest

from tests.integration.hk_vllm.e2e.catalogue import FLOAT32, HALF
from tests.integration.shared.e2e.case import Case, assert_as_near, assert_equal, assert_met
from tests.integration.shared.e2e.compare import assert_routed, assert_true_answers
from tests.integration.shared.e2e.engine import Checkpoint, Engines, Reader
from tests.integration.shared.e2e.singles import (
    WORDS,
    assert_checked,
    assert_long,
    assert_ranks_measured,
    assert_serves_and_says_why,
    assert_stock,
)
from tests.models import TINY_LAYERS


@pytest.mark.engine_proof
@pytest.mark.parametrize("name", ["backend-unset", "backend-0"])
def test_without_hk_backend(name: str, served: Reader) -> None:
    """vLLM is stock, bit for bit, and nothing of HK is even imported."""
    assert_stock(served(name), served("without-plugin"))


# -- HK must step aside

REASONS = {
    **WORDS,
    "engine-unknown": ["AttentionMetadataBuilder.build", "shared_prefix", "common_prefix_len"],
    "parent-unknown": ["CPUAttentionMetadataBuilder.build", "prefix", "common_prefix_len"],
}


@pytest.mark.engine_proof
@pytest.mark.parametrize("name", REASONS)
def test_serves_and_says_why(name: str, served: Reader, checkpoint: Checkpoint) -> None:
    assert_serves_and_says_why(name, REASONS[name], served(name), checkpoint("tiny-64"))


@pytest.mark.engine_proof
def test_strict_refuses_to_start(served: Reader) -> None:
    """HK_STRICT=1: a layer that would fall back is an error that says why."""
    error = served("strict").error
    assert "HK_STRICT=1" in error
    assert "hk_backend._cpu cannot be loaded" in error


@pytest.mark.engine_proof
def test_shadow_check(served: Reader, checkpoint: Checkpoint) -> None:
    process = served("checked")
    assert_checked(process, checkpoint("tiny-64"), "ERROR")
    linear = process.only.rounds[-1].workers[0].routes["linear"]
    assert linear["on"]
    assert linear["checked_calls"] == linear["calls"] + linear["dummy_calls"] > 0
    assert 0 < linear["max_check_error"] < 1e-5


# -- processes, and torch.compile


@pytest.mark.parametrize(
    ("name", "ranks"),
    [pytest.param("spawned", 1, marks=pytest.mark.engine_proof), ("tensor-parallel", 2)],
)
def test_long(name: str, ranks: int, served: Reader, checkpoint: Checkpoint) -> None:
    """Chunked prefill, a cached prefix, and a fault that shows, in every rank."""
    assert_long(served(name), ranks, checkpoint("tiny-64"))
    result = served(name).only
    # what each rank must have computed: all but cached tokens and single ones left over
    asked = [answer for item in result.rounds for answer in item.answers]
    new_tokens = sum(len(answer.prompt) - answer.cached_tokens for answer in asked)
    for before, worker in zip(result.start, result.rounds[-1].workers, strict=True):
        linear = worker.routes["linear"]  # each rank's shards of every layer, and of the LM head
        assert (linear["layers"], linear["layers_left"]) == (4 * TINY_LAYERS + 1, {})
        assert linear["tokens"] > 0
        warm_up = before.routes.get("attention", {"tokens": 0})["tokens"]
        served_tokens = worker.routes["attention"]["tokens"] - warm_up
        assert 0.95 * new_tokens <= served_tokens / worker.layers <= new_tokens


@pytest.mark.engine_proof
def test_ranks_that_measure(served: Reader, checkpoint: Checkpoint) -> None:
    assert_ranks_measured(served, checkpoint("tiny-64"))


@pytest.mark.engine_proof
def test_compiled(served: Reader, checkpoint: Checkpoint) -> None:
    """The same answers from a model that went through torch.compile."""
    result = served("compiled").only
    assert served("compiled").lines("saved AOT compiled function"), "nothing was compiled"
    assert_routed(result)
    routes = result.rounds[-1].workers[0].routes
    # counted at every call, not once when Python was traced: four layers for each attention
    assert routes["linear"]["tokens"] >= 4 * routes["attention"]["tokens"] > 0
    for item in result.rounds:
        assert_true_answers(item.answers, checkpoint("tiny-64"))


# -- traffic of each kind, as transformers and stock vLLM serve it, by HK


@pytest.mark.engine_proof
@pytest.mark.parametrize("case", FLOAT32, ids=str)
def test_float32(case: Case, hk: Engines, checkpoint: Checkpoint) -> None:
    """`--attention-backend CUSTOM` means the platform's own choice, wrapped."""
    assert_met(case.kind.replace("custom", "whole"), hk[str(case)])
    assert_equal(hk[str(case)], checkpoint(case.model))


@pytest.mark.held
@pytest.mark.engine_proof
@pytest.mark.parametrize("case", HALF, ids=str)
def test_half_precision(case: Case, hk: Engines, stock: Engines, checkpoint: Checkpoint) -> None:
    assert_met(case.kind, hk[str(case)])
    assert_as_near(hk[str(case)], stock[str(case)], checkpoint(case.model))
