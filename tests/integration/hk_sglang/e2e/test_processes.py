"""HK split over ranks, in spawned processes, and over caches of other forms."""

from __future__ import annotations

import pytest

from tests.integration.shared.e2e.engine import Checkpoint, Reader
from tests.integration.shared.e2e.ranks import assert_long, assert_reported


@pytest.mark.engine("tensor-parallel", "hnd")
@pytest.mark.parametrize(("name", "ranks"), [("tensor-parallel", 2), ("hnd", 1)])
def test_long(name: str, ranks: int, served: Reader, checkpoint: Checkpoint) -> None:
    assert_long(served(name).only, ranks, checkpoint("tiny-64"))


@pytest.mark.engine("tensor-parallel", "hnd")
@pytest.mark.parametrize(("name", "ranks"), [("tensor-parallel", 2), ("hnd", 1)])
def test_report_at_shutdown(name: str, ranks: int, served: Reader) -> None:
    assert_reported(served(name), ranks)
