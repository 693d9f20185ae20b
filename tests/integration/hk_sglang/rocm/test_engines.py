"""Whole engines over SGLang's backends for ROCm: pages of one token, chunks that share steps with
decode rows, HK's prefill by MI355X machine code.

On SGLang's CPU platform: what surrounds attention on ROCm are compiled kernels. So the backend,
`aiter` by default on ROCm, is named here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.hk_sglang.e2e.catalogue import CHUNKED
from tests.integration.hk_sglang.e2e.conftest import ENVIRONMENT
from tests.integration.shared.e2e.compare import assert_routed
from tests.integration.shared.e2e.engine import HK, Checkpoint, Forks, serve
from tests.integration.shared.e2e.prompts import SMALL
from tests.integration.shared.e2e.rounding import assert_as_exact, assert_same_numbers, error_of
from tests.integration.shared.e2e.scenario import Round, Scenario, ScenarioResult
from tests.kernels.catalogues import serving_few
from tests.models import random_prompts

RUNNER = "tests.integration.hk_sglang.rocm.runner"
INTERPRETED = {"TRITON_INTERPRET": "1"}
PARENTS = ("aiter", "triton")
ROUNDS = [
    Round(random_prompts(SMALL, seed=9), max_tokens=4),
    # SGLang lets decode rows into a chunk's step where nobody asked for log-probabilities
    Round(random_prompts(SMALL, seed=10), max_tokens=6, tokens_only=True),
    Round(random_prompts(SMALL, seed=9), max_tokens=4, mutation="PageOffByOne"),
]
Serve = Callable[[str, str, list[Round]], ScenarioResult]


@pytest.fixture(scope="module")
def engine(checkpoint: Checkpoint, folder: Path) -> Iterator[Serve]:
    """What one answers over a parent, with HK on a device."""
    forks = Forks(RUNNER, ENVIRONMENT | INTERPRETED)

    def run(parent: str, device: str, rounds: list[Round]) -> ScenarioResult:
        name = f"{parent}-{device.partition(':')[0]}"
        flags = {"attention_backend": parent, "prefill_attention_backend": "hk"}
        scenario = Scenario(name, checkpoint("tiny-64"), rounds, "bfloat16", CHUNKED | flags)
        return serve(forks, [scenario], folder, HK | {"HK_DEVICE": device}, RUNNER).only

    yield run
    forks.stop()


@pytest.fixture(scope="module")
def on_the_cpu(engine: Serve) -> ScenarioResult:
    """HK's host kernels, over the same parent and pages."""
    return engine("aiter", "cpu", ROUNDS[:1])


@pytest.mark.parametrize("parent", PARENTS)
def test_default_pages(
    parent: str, engine: Serve, on_the_cpu: ScenarioResult, checkpoint: Checkpoint
) -> None:
    """Every prompt's token is HK's. Then each page is read as the one behind it, which HK counts as
    its own, and which is far from the truth."""
    found, model = engine(parent, "emulated:gfx950", ROUNDS), checkpoint("tiny-64")
    assert_routed(found)
    healthy, mixed, faulty = found.rounds
    assert any(step.decodes and step.extends for step in mixed.batches or [])
    kernel = serving_few("attention_prefill", dtype="bf16", head_size=64, keys="tokens")
    assert healthy.workers[0].launches[kernel.name] > 0
    assert not mixed.workers[0].mutated_calls
    assert_same_numbers(replace(found, rounds=[healthy]), on_the_cpu, model)
    assert faulty.workers[0].mutated_calls
    with pytest.raises(AssertionError, match=r"mean error .*, stock has"):
        assert_as_exact(error_of([faulty], model), error_of(on_the_cpu.rounds, model))
