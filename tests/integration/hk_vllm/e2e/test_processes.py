"""HK in processes that vLLM spawns, split over ranks, and under torch.compile."""

from __future__ import annotations

import pytest

from tests.integration.shared.e2e.compare import assert_routed, assert_true_answers
from tests.integration.shared.e2e.engine import Checkpoint, Reader
from tests.integration.shared.e2e.ranks import assert_long, assert_reported
from tests.models import TINY_LAYERS

SPAWNED = pytest.mark.parametrize(
    ("name", "ranks"),
    [pytest.param("spawned", 1, marks=pytest.mark.engine_proof), ("tensor-parallel", 2)],
)


@SPAWNED
def test_spawned(name: str, ranks: int, served: Reader, checkpoint: Checkpoint) -> None:
    """Chunked prefill, a cached prefix, and a fault that shows, in every rank."""
    result = served(name).only
    assert_long(result, ranks, checkpoint("tiny-64"))
    workers = result.rounds[-1].workers
    for worker in workers:  # each rank's shards of every layer, and of the LM head
        linear = worker.routes["linear"]
        assert linear["layers"] == 4 * TINY_LAYERS + 1
        assert linear["layers_left"] == {}
        assert linear["tokens"] > 0
    # what each rank must have computed: all but cached tokens and single ones left over
    asked = [answer for item in result.rounds for answer in item.answers]
    new_tokens = sum(len(answer.prompt) - answer.cached_tokens for answer in asked)
    for before, worker in zip(result.start, workers, strict=True):
        served_tokens = worker.routes["attention"]["tokens"]
        if "attention" in before.routes:
            served_tokens -= before.routes["attention"]["tokens"]
        assert 0.95 * new_tokens <= served_tokens / worker.layers <= new_tokens


@SPAWNED
def test_report_at_shutdown(name: str, ranks: int, served: Reader) -> None:
    assert_reported(served(name), ranks)


@pytest.mark.engine_proof
def test_ranks_that_measure(served: Reader, checkpoint: Checkpoint) -> None:
    """One measures, and both have its answer, whatever that is on this machine."""
    result = served("measured-ranks").only
    first, second = (worker.routes for worker in result.rounds[-1].workers)
    for counted in ("layers", "layers_left"):
        assert first["linear"][counted] == second["linear"][counted]
    total = first["linear"]["layers"] + sum(first["linear"]["layers_left"].values())
    assert total == 4 * TINY_LAYERS + 1
    assert first["attention"]["fallbacks"].keys() == second["attention"]["fallbacks"].keys()
    [line] = served("measured-ranks").lines("hk_backend: measured 4 kinds of linear layers")
    assert " and 1 of attention in " in line
    for item in result.rounds:
        assert_true_answers(item.answers, checkpoint("tiny-64"))


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
