"""HK in processes that vLLM spawns, split over ranks, and under torch.compile."""

from __future__ import annotations

import pytest

from tests.integration.hk_vllm.e2e.processes import Checkpoint, Reader
from tests.integration.shared.e2e.compare import (
    assert_routed,
    assert_true_answers,
    assert_true_logprobs,
)
from tests.models import TINY_LAYERS


@pytest.mark.engine("spawned", "tensor-parallel")
@pytest.mark.parametrize(("name", "ranks"), [("spawned", 1), ("tensor-parallel", 2)])
def test_spawned(name: str, ranks: int, served: Reader, checkpoint: Checkpoint) -> None:
    """Chunked prefill, a cached prefix, and a fault that shows, in every rank."""
    result = served(name)["only"]
    chunks, _, prefix, faulty = result.rounds
    assert len(faulty.workers) == ranks
    assert_routed(result)
    for item in (chunks, prefix):
        assert_true_answers(item.answers, checkpoint("tiny-64"))
    assert all(answer.cached_tokens >= 256 for answer in prefix.answers)
    assert all(worker.mutated_calls for worker in faulty.workers)
    with pytest.raises(AssertionError, match="log-probability"):
        assert_true_logprobs(faulty.answers, checkpoint("tiny-64"))
    for worker in faulty.workers:  # each rank's shards of every layer, and of the LM head
        linear = worker.routes["linear"]
        assert linear["layers"] == 4 * TINY_LAYERS + 1
        assert linear["layers_left"] == {}
        assert linear["tokens"] > 0
    # what each rank must have computed: all but cached tokens and single ones left over
    asked = [answer for item in result.rounds for answer in item.answers]
    new_tokens = sum(len(answer.prompt) - answer.cached_tokens for answer in asked)
    for before, worker in zip(result.start, faulty.workers, strict=True):
        served_tokens = worker.routes["attention"]["tokens"]
        if "attention" in before.routes:
            served_tokens -= before.routes["attention"]["tokens"]
        assert 0.95 * new_tokens <= served_tokens / worker.layers <= new_tokens


@pytest.mark.engine("spawned", "tensor-parallel")
@pytest.mark.parametrize(("name", "ranks"), [("spawned", 1), ("tensor-parallel", 2)])
def test_report_at_shutdown(name: str, ranks: int, served: Reader) -> None:
    """One line for each process that computed, with its own tokens."""
    workers = served(name)["only"].rounds[-1].workers
    lines = served(name).lines("hk_backend:", "prefill tokens by HK")
    assert len(lines) == ranks, lines
    for worker in workers:
        tokens = worker.routes["attention"]["tokens"]
        assert all(f" {tokens} prefill tokens by HK (100.0%)" in line for line in lines)


@pytest.mark.engine("compiled")
def test_compiled(served: Reader, checkpoint: Checkpoint) -> None:
    """The same answers from a model that went through torch.compile."""
    result = served("compiled")["only"]
    assert served("compiled").lines("saved AOT compiled function"), "nothing was compiled"
    assert_routed(result)
    routes = result.rounds[-1].workers[0].routes
    # counted at every call, not once when Python was traced: four layers for each attention
    assert routes["linear"]["tokens"] >= 4 * routes["attention"]["tokens"] > 0
    for item in result.rounds:
        assert_true_answers(item.answers, checkpoint("tiny-64"))
