"""SGLang serves, and MI355X machine code computes its prefill attention: HK_DEVICE=emulated:gfx950.

Beside it the same traffic with HK on the cpu device, and the truth: transformers in float32.
"""

from __future__ import annotations

import pytest

from tests.integration.shared.e2e.compare import assert_replayed, assert_routed
from tests.integration.shared.e2e.engine import Checkpoint, Reader
from tests.integration.shared.e2e.rounding import assert_same_numbers

pytestmark = pytest.mark.engine_proof


@pytest.mark.engine("emulated", "emulated-cpu")
def test_chunks(served: Reader, checkpoint: Checkpoint) -> None:
    """Fresh rows and extends by the code objects, which read SGLang's own cache in place."""
    found, cpu = served("emulated").only, served("emulated-cpu").only
    assert_routed(found)
    assert any(batch.extends for item in found.rounds for batch in item.batches or [])
    [worker] = found.rounds[-1].workers
    launched = {name: count for name, count in worker.launches.items() if count}
    linear = sum(launched.pop(name) for name in list(launched) if name.startswith("gemm_bf16_"))
    assert set(launched) == {f"attention_prefill_bf16_d64_{keys}" for keys in ("packed", "paged")}
    assert sum(launched.values()) == worker.routes["attention"]["calls"]
    assert linear == worker.routes["linear"]["calls"] > 0
    assert_same_numbers(found, cpu, checkpoint("tiny-64"))


@pytest.mark.engine("emulated-graphs", "emulated-cpu")
def test_linear_layers_in_graphs(served: Reader, checkpoint: Checkpoint) -> None:
    """Captured once and replayed from step to step, between attention that is not."""
    replayed, cpu = served("emulated-graphs").only, served("emulated-cpu").only
    assert_replayed(replayed)
    assert_same_numbers(replayed, cpu, checkpoint("tiny-64"))


@pytest.mark.engine("emulated", "emulated-cpu")
def test_it_says_that_it_is_slow(served: Reader) -> None:
    assert served("emulated").lines("emulated:gfx950 executes machine code on the CPU: slow")
    assert not served("emulated-cpu").lines("emulated:")
