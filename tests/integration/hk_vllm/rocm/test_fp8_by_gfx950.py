"""One engine over a ROCm backend's cache and an FP8 checkpoint, both routes by MI355X machine code.

Chunked prompts, prefixes that are found in the cache, and faults in how the cache is read and in
the linear layers, each of which must show.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.integration.hk_vllm.e2e.engine import serve
from tests.integration.hk_vllm.rocm.parents import PARENTS
from tests.integration.hk_vllm.rocm.test_engines import (
    ENGINE,
    FAULTS,
    assert_far,
    assert_launched,
    assert_traffic,
    faulty,
    rounds,
)
from tests.integration.shared.checkpoints import SCHEMES, Made, make
from tests.integration.shared.e2e.compare import assert_routed
from tests.integration.shared.e2e.engine import HK
from tests.integration.shared.e2e.linear_faults import KERNEL_FAULTS, LENGTHS
from tests.integration.shared.e2e.quantized import (
    assert_all_by_hk,
    assert_on_gfx950,
    error_in,
)
from tests.integration.shared.e2e.rounding import Errors, assert_as_exact, error_of
from tests.integration.shared.e2e.scenario import Round, Scenario, ScenarioResult
from tests.integration.shared.linear.devices import GFX950
from tests.models import random_prompts, tiny_llama

PARENT, HEAD_SIZE, DTYPE = "rocm-attn", 64, "bfloat16"
SCHEME = SCHEMES["ct-channel-token"]
ALL_FAULTS = (*FAULTS, *KERNEL_FAULTS)


def faulty_round(fault: str) -> Round:
    if fault in FAULTS:
        return faulty(fault)
    return Round(random_prompts(LENGTHS, seed=11), max_tokens=1, mutation=fault)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("fp8")
    return make(SCHEME, tiny_llama(folder, HEAD_SIZE), folder)


@pytest.fixture(scope="module")
def whole(made: Made, tmp_path_factory: pytest.TempPathFactory) -> ScenarioResult:
    """All rounds: healthy ones, then one for each fault."""
    name = f"{PARENT} fp8"
    engine = {**ENGINE, "block_size": PARENTS[PARENT].block_size}
    asked = [*rounds(), *map(faulty_round, ALL_FAULTS)]
    scenario = Scenario(name, str(made.checkpoint), asked, DTYPE, engine)
    environment = {**HK, "HK_DEVICE": GFX950, "OMP_NUM_THREADS": "1"}
    folder = tmp_path_factory.mktemp("served")
    return serve([scenario], folder, environment, "tests.integration.hk_vllm.rocm.runner")[name]


@pytest.fixture(scope="module")
def healthy(whole: ScenarioResult) -> ScenarioResult:
    return replace(whole, rounds=whole.rounds[: len(rounds())])


@pytest.fixture(scope="module")
def allowed(healthy: ScenarioResult, made: Made) -> Errors:
    """What transformers is off in bfloat16, with the checkpoint's own rounding."""
    return error_in(DTYPE, healthy, made.truth)


def test_answers(healthy: ScenarioResult, made: Made, allowed: Errors) -> None:
    assert_traffic(healthy)
    assert_as_exact(error_of(healthy.rounds, str(made.truth)), allowed)


def test_machine_code_computed_it(healthy: ScenarioResult) -> None:
    """Every prefill row and every linear layer, extends by the kernel that reads a split cache."""
    assert_routed(healthy)
    assert_all_by_hk(healthy)
    assert_on_gfx950(healthy)
    assert_launched(healthy, PARENT, HEAD_SIZE)


@pytest.mark.parametrize("fault", ALL_FAULTS)
def test_a_fault_shows(fault: str, whole: ScenarioResult, made: Made, allowed: Errors) -> None:
    """HK counts the tokens as its own, and they are far from the truth."""
    index = len(rounds()) + ALL_FAULTS.index(fault)
    before, item = whole.rounds[index - 1].workers[0], whole.rounds[index]
    [after] = item.workers
    assert after.mutated_calls > before.mutated_calls
    assert after.routes["attention"]["on"]
    assert after.routes["linear"]["on"]
    assert_far(error_of([item], str(made.truth)), allowed)
