"""HK split over ranks, in spawned processes, and over caches of other forms."""

from __future__ import annotations

import pytest

from tests.integration.shared.e2e.compare import assert_true_answers
from tests.integration.shared.e2e.engine import Checkpoint, Reader
from tests.integration.shared.e2e.ranks import assert_long, assert_reported
from tests.models import TINY_LAYERS

pytestmark = pytest.mark.engine_proof


@pytest.mark.engine("tensor-parallel", "hnd")
@pytest.mark.parametrize(("name", "ranks"), [("tensor-parallel", 2), ("hnd", 1)])
def test_long(name: str, ranks: int, served: Reader, checkpoint: Checkpoint) -> None:
    assert_long(served(name).only, ranks, checkpoint("tiny-64"))


@pytest.mark.engine("tensor-parallel", "hnd")
@pytest.mark.parametrize(("name", "ranks"), [("tensor-parallel", 2), ("hnd", 1)])
def test_report_at_shutdown(name: str, ranks: int, served: Reader) -> None:
    assert_reported(served(name), ranks)


@pytest.mark.engine("measured-ranks")
def test_ranks_that_measure(served: Reader, checkpoint: Checkpoint) -> None:
    """One measures, and both have its answer, whatever that is on this machine."""
    engine = served("measured-ranks")
    first, second = (worker.routes for worker in engine.only.rounds[-1].workers)
    for counted in ("layers", "layers_left"):
        assert first["linear"][counted] == second["linear"][counted]
    total = first["linear"]["layers"] + sum(first["linear"]["layers_left"].values())
    assert total == 4 * TINY_LAYERS + 1
    assert first["attention"]["fallbacks"].keys() == second["attention"]["fallbacks"].keys()
    [line] = engine.lines("hk_backend: measured 4 kinds of linear layers")
    assert " and 1 of attention in " in line
    for item in engine.only.rounds:
        assert_true_answers(item.answers, checkpoint("tiny-64"))
