"""Engines that `make test` starts at every commit: each answers healthy rounds, then one per fault.

`exact` computes in float32 on the cpu device, where a right answer is the truth but for a sum's
rounding. `gfx950` executes MI355X machine code, over the backend and the pages that SGLang chooses
on ROCm. `cpu` answers the same in the same precision. All other tests of whole engines are proofs,
which `make prove` runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.hk_sglang.e2e.catalogue import CHUNKED, ON_EMULATED_GPU, RADIX
from tests.integration.shared.checkpoints import SCHEMES, Made, make
from tests.integration.shared.checkpoints.mixed import make_mixed
from tests.integration.shared.e2e import prompts
from tests.integration.shared.e2e.compare import (
    assert_decoded,
    assert_routed,
    assert_true_answers,
    assert_true_logprobs,
    assert_true_tokens,
)
from tests.integration.shared.e2e.engine import HK, Checkpoint, Engines
from tests.integration.shared.e2e.linear_faults import KERNEL_FAULTS, LINEAR_FAULTS
from tests.integration.shared.e2e.quantized import assert_all_by_hk, assert_on_gfx950, assert_true
from tests.integration.shared.e2e.rounding import assert_as_exact, assert_same_numbers, error_of
from tests.integration.shared.e2e.scenario import Round, RoundResult, Scenario, ScenarioResult
from tests.integration.shared.linear.devices import CPU, GFX950
from tests.kernels.catalogues import serving_few
from tests.models import random_prompts

SCHEME = SCHEMES["ct-channel-token"]
AITER = {"attention_backend": "aiter", "prefill_attention_backend": "hk"}
ON_ROCM = CHUNKED | AITER | {"chunked_prefill_size": 64}
EXACT_FAULTS = (*prompts.MUTATIONS, *LINEAR_FAULTS)
GFX950_FAULTS = ("PageOffByOne", *KERNEL_FAULTS)


def faulty(names: tuple[str, ...], longest: int) -> list[Round]:
    """A round with each fault. The longest prompt's second chunk reads cached keys."""
    asked = random_prompts([7, 33, longest], seed=11)
    return [Round(asked, max_tokens=1, mutation=name) for name in names]


def exact_rounds(model: str) -> list[Round]:
    """Rounds of chunks, of chunks beside decodes, of a cached prefix, and of every fault."""
    asked = prompts.Prompts("tiny-64", model)
    chunks = asked.of(asked.lengths())
    mixed = Round(chunks, max_tokens=12, tokens_only=True)
    return [Round(chunks), mixed, *prompts.prefix_rounds(asked), *faulty(EXACT_FAULTS, 200)]


SHORT = [7, 40, 90]
"""Lengths of prompts for the emulator, which is slow."""
SCORED = Round(random_prompts(SHORT, seed=9), max_tokens=4)
MIXED = Round(random_prompts(SHORT, seed=10), max_tokens=6, tokens_only=True)
"""SGLang lets decode rows into a chunk's step where nobody asked for log-probabilities."""


@pytest.fixture(scope="module")
def quantised(checkpoint: Checkpoint, folder: Path) -> Mapping[str, Made]:
    """Each engine's checkpoint, with the model of its true answers."""
    source, into = Path(checkpoint("tiny-64")), folder / "quantized"
    into.mkdir(exist_ok=True)
    rounded = make(SCHEME, source, into)
    return {"exact": make_mixed(source, into), "gfx950": rounded, "cpu": rounded}


@pytest.fixture(scope="module")
def each_time(engines: Engines, quantised: Mapping[str, Made]) -> Engines:
    """The three engines."""
    models = {name: str(made.checkpoint) for name, made in quantised.items()}
    paged = RADIX | {"page_size": 16}
    on_gfx950, on_cpu = (HK | ON_EMULATED_GPU | {"HK_DEVICE": device} for device in (GFX950, CPU))
    rounds = [SCORED, MIXED, *faulty(GFX950_FAULTS, 80)]
    exact = exact_rounds(models["exact"])
    engines.add(
        [
            Scenario("gfx950", models["gfx950"], rounds, "bfloat16", ON_ROCM, "", on_gfx950),
            Scenario("exact", models["exact"], exact, "float32", paged, "float32_everywhere", HK),
            Scenario("cpu", models["cpu"], [SCORED], "bfloat16", ON_ROCM, "", on_cpu),
        ]
    )
    return engines


@pytest.mark.held
def test_exact_answers(each_time: Engines, quantised: Mapping[str, Made]) -> None:
    """Three schemes of weights, chunks, decodes beside chunks and a cached prefix are exact.

    HK computes all of them, and transformers has the same answers.
    """
    exact, truth = each_time["exact"], str(quantised["exact"].truth)
    assert_routed(exact)
    assert_all_by_hk(exact)
    chunks, mixed, prefix, cached = exact.rounds[:4]
    for item in (chunks, prefix, cached):
        assert_true_answers(item.answers, truth)
    assert_true_tokens(mixed.answers, truth)
    assert any(step.extends and step.fresh for step in chunks.batches or [])
    assert any(step.extends and step.decodes for step in mixed.batches or [])
    assert all(answer.cached_tokens >= 256 for answer in cached.answers)


@pytest.mark.parametrize("fault", EXACT_FAULTS)
def test_exact_faults(fault: str, each_time: Engines, quantised: Mapping[str, Made]) -> None:
    """A small fault in HK's attention or linear layers is seen in a log-probability."""
    found = with_fault(fault, EXACT_FAULTS, each_time["exact"])
    with pytest.raises(AssertionError, match="log-probability"):
        assert_true_logprobs(found.answers, str(quantised["exact"].truth))


@pytest.mark.held
def test_cpu_rounds_as_its_dtype(each_time: Engines, quantised: Mapping[str, Made]) -> None:
    """The answers are as near to the truth as bfloat16 and activations in FP8 allow."""
    cpu = each_time["cpu"]
    assert_routed(cpu)
    assert_all_by_hk(cpu)
    assert_true(SCHEME, cpu, quantised["cpu"].truth, "bfloat16")


def test_gfx950_answers(each_time: Engines, quantised: Mapping[str, Made]) -> None:
    """MI355X machine code computes both routes, with attention over pages of one token.

    The answers are as near to the truth, and to the cpu device, as rounding allows.
    """
    gfx950, cpu = each_time["gfx950"], each_time["cpu"]
    scored, mixed, *_ = gfx950.rounds
    healthy = replace(gfx950, rounds=[scored, mixed])
    assert_routed(healthy)
    assert_decoded(healthy)
    assert_all_by_hk(healthy)
    assert_on_gfx950(healthy)
    assert any(step.decodes and step.extends for step in mixed.batches or [])
    pages_of_one = serving_few("attention_prefill", dtype="bf16", head_size=64, keys="tokens")
    assert scored.workers[0].launches[pages_of_one.name] > 0
    truth = str(quantised["gfx950"].truth)
    assert_same_numbers(replace(gfx950, rounds=[scored]), cpu, truth)


@pytest.mark.parametrize("fault", GFX950_FAULTS)
def test_gfx950_faults(fault: str, each_time: Engines, quantised: Mapping[str, Made]) -> None:
    """HK counts the calls as its own, and the answers are farther from the truth than rounding."""
    found = with_fault(fault, GFX950_FAULTS, each_time["gfx950"])
    cpu, truth = each_time["cpu"], str(quantised["gfx950"].truth)
    assert all(found.workers[0].routes[route]["on"] for route in ("attention", "linear"))
    with pytest.raises(AssertionError, match=r"mean error .*, stock has"):
        assert_as_exact(error_of([found], truth), error_of(cpu.rounds, truth))


def with_fault(name: str, faults: tuple[str, ...], found: ScenarioResult) -> RoundResult:
    """The round in which the fault `name`, one of the scenario's last `faults`, ran."""
    before, item = found.rounds[faults.index(name) - len(faults) - 1 :][:2]
    assert item.workers[0].mutated_calls > before.workers[0].mutated_calls
    return item
