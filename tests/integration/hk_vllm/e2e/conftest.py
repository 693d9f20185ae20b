"""Engine processes: started when the first test asks, two at a time, each once per session."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.hk_vllm.e2e.catalogue import Case
from tests.integration.hk_vllm.e2e.engine import FORKS
from tests.integration.hk_vllm.e2e.processes import PROCESSES, cases_of
from tests.integration.shared.e2e.engine import Checkpoint, Reader


@pytest.fixture(scope="session")
def served(
    request: pytest.FixtureRequest, checkpoint: Checkpoint, folder: Path
) -> Iterator[Reader]:
    """What an engine process answered; waits for it. All that the session needs start at once."""
    names, cases = needed(request.session.items)
    for model in {case.model for case in cases} | {"tiny-64"}:
        checkpoint(model)  # here, not in two threads at once
    with ThreadPoolExecutor(max_workers=2) as pool:
        running = {
            name: pool.submit(PROCESSES[name].run, cases_of(name, cases), checkpoint, folder / name)
            for name in names
        }
        yield lambda name: running[name].result()
        pool.shutdown(wait=False, cancel_futures=True)
        FORKS.stop()


def needed(items: list[pytest.Item]) -> tuple[list[str], list[Case]]:
    """The engine processes and the cases of all selected tests, each once, in their order."""
    names: dict[str, None] = {}
    cases: dict[Case, None] = {}
    for item in items:
        for marker in item.iter_markers("engine"):
            names |= dict.fromkeys(marker.args)
        callspec = getattr(item, "callspec", None)
        case = callspec.params.get("case") if callspec else None
        if isinstance(case, Case):
            cases |= dict.fromkeys([case.healthy(), case])
    return list(names), list(cases)
