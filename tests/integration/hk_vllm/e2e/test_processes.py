"""HK in processes that vLLM spawns, split over ranks, and under torch.compile."""

from __future__ import annotations

import pytest

from tests.integration.shared.e2e.compare import assert_routed, assert_true_answers
from tests.integration.shared.e2e.engine import Checkpoint, Reader
from tests.integration.shared.e2e.singles import assert_long, assert_ranks_measured
from tests.models import TINY_LAYERS


@pytest.mark.parametrize(
    ("name", "ranks"),
    [pytest.param("spawned", 1, marks=pytest.mark.engine_proof), ("tensor-parallel", 2)],
)
def test_spawned(name: str, ranks: int, served: Reader, checkpoint: Checkpoint) -> None:
    """Chunked prefill, a cached prefix, and a fault that shows, in every rank."""
    assert_long(served(name), ranks, checkpoint("tiny-64"))
    result = served(name).only
    # what each rank must have computed: all but cached tokens and single ones left over
    asked = [answer for item in result.rounds for answer in item.answers]
    new_tokens = sum(len(answer.prompt) - answer.cached_tokens for answer in asked)
    for before, worker in zip(result.start, result.rounds[-1].workers, strict=True):
        linear = worker.routes["linear"]  # each rank's shards of every layer, and of the LM head
        assert linear["layers"] == 4 * TINY_LAYERS + 1
        assert linear["layers_left"] == {}
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
