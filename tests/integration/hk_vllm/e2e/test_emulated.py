"""vLLM serves, and MI355X machine code computes its prefill attention: HK_DEVICE=emulated:gfx950.

Beside it the same traffic with HK on the cpu device, and the truth: transformers in float32.
"""

from __future__ import annotations

import pytest

from tests.integration.hk_vllm.e2e.catalogue import EMULATED, Case
from tests.integration.hk_vllm.e2e.test_equivalence import assert_traffic
from tests.integration.shared.e2e.compare import ROUTED_SHARE, assert_replayed, assert_routed
from tests.integration.shared.e2e.engine import Checkpoint, Engines
from tests.integration.shared.e2e.rounding import (
    assert_agree,
    assert_as_exact,
    assert_same_numbers,
    error_of,
)
from tests.integration.shared.e2e.scenario import ScenarioResult
from tests.kernels.catalogues import serving_few

CPU_ATTN_KEYS = 'cache with keys as "B H D N"'
WHOLE = [case for case in EMULATED if case.kind == "whole"]
CHUNKED = [case for case in EMULATED if case.kind == "chunked"]
BROKEN = pytest.mark.parametrize("case", WHOLE[:1], ids=str)
"""The case that the broken kernels serve."""


@pytest.mark.engine_proof
@pytest.mark.parametrize("case", WHOLE, ids=str)
def test_fresh_prompts(case: Case, emulated: Engines, hk: Engines, checkpoint: Checkpoint) -> None:
    """All of it computed by the code objects, with the log-probabilities of the cpu device."""
    found, cpu = emulated[str(case)], hk[str(case)]
    assert_routed(found)
    assert_launched(case, found)
    assert_traffic(case, found)
    assert_same_numbers(found, cpu, checkpoint(case.model))


@pytest.mark.engine_proof
@pytest.mark.parametrize("case", CHUNKED, ids=str)
def test_extends_stay_with_the_parent(
    case: Case, emulated: Engines, hk: Engines, checkpoint: Checkpoint
) -> None:
    """CPU_ATTN's own cache is no GPU's: fresh rows are HK's, extends vLLM's, with the reason."""
    found, cpu = emulated[str(case)], hk[str(case)]
    assert_traffic(case, found)
    assert_fresh_rows_routed(found)
    assert_launched(case, found)
    assert_same_numbers(found, cpu, checkpoint(case.model))


@BROKEN
@pytest.mark.engine_proof
def test_linear_layers_in_graphs(
    case: Case, emulated: Engines, hk: Engines, checkpoint: Checkpoint
) -> None:
    """Captured once and replayed from step to step, between attention that is not."""
    replayed, cpu = emulated["linear_in_graphs"], hk[str(case)]
    assert_replayed(replayed)
    assert_same_numbers(replayed, cpu, checkpoint(case.model))


@BROKEN
@pytest.mark.engine_proof
def test_a_kernel_that_computes_wrong_is_seen(
    case: Case, emulated: Engines, hk: Engines, checkpoint: Checkpoint
) -> None:
    """The control: one instruction of the catalogue's file is another, and the tests above fail."""
    wrong, cpu = emulated["kernel_computes_wrong"], hk[str(case)]
    assert_routed(wrong)
    assert_launched(case, wrong)
    truth = checkpoint(case.model)
    with pytest.raises(AssertionError, match=r"mean error .* between the two, rounding gives"):
        assert_agree(wrong.rounds, cpu.rounds, truth)
    with pytest.raises(AssertionError, match=r"error .*, stock has"):
        assert_as_exact(error_of(wrong.rounds, truth), error_of(cpu.rounds, truth))


@BROKEN
@pytest.mark.engine_proof
def test_a_kernel_that_the_emulator_refuses_is_switched_off(
    case: Case, emulated: Engines, hk: Engines, checkpoint: Checkpoint
) -> None:
    """No token of the answers is its own: vLLM computes what it began, and says why."""
    result, cpu = emulated["kernel_does_not_wait"], hk[str(case)]
    attention = result.rounds[-1].workers[0].routes["attention"]
    why = "EmulatorError: the emulator found: "
    # what a kernel without waits meets first: a result that it reads, or one that it writes over
    found = attention["why"].partition(why)[2]
    assert not attention["on"]
    assert found.startswith(("unwaited-", "overwritten-in-flight"))
    assert attention["tokens"] == 0
    assert emulated.of("kernel_does_not_wait").lines("route attention is switched off", why)
    assert_same_numbers(result, cpu, checkpoint(case.model))


@BROKEN
@pytest.mark.engine_proof
def test_a_damaged_file_is_not_loaded(
    case: Case, emulated: Engines, hk: Engines, checkpoint: Checkpoint
) -> None:
    """Found when the layers are made: they are vLLM's from the start, and the log says why."""
    result, cpu = emulated["kernel_file_damaged"], hk[str(case)]
    attention = result.rounds[-1].workers[0].routes["attention"]
    [why] = attention["fallbacks"]
    assert why.startswith("attention_prefill_bf16_d64_packed cannot run on device 0 of emulated:")
    assert "sha256 is not the catalogue's" in why
    assert attention["tokens"] == 0
    assert emulated.of("kernel_file_damaged").lines(
        "layers left to vLLM's attention: attention_prefill", "sha256"
    )
    assert_same_numbers(result, cpu, checkpoint(case.model))


@pytest.mark.engine_proof
@pytest.mark.parametrize("case", WHOLE[:1], ids=str)
def test_it_says_that_it_is_slow(case: Case, emulated: Engines, hk: Engines) -> None:
    log = emulated.of(str(case))
    assert log.lines("prefill attention is computed by HK on emulated:gfx950")
    assert log.lines("emulated:gfx950 executes machine code on the CPU: slow")
    assert not hk.of(str(case)).lines("emulated")


def assert_launched(case: Case, result: ScenarioResult) -> None:
    """Every call that HK counts was a launch of the model's kernel, as the emulator counts."""
    before, [after] = result.start[0], result.rounds[-1].workers
    head_size = int(case.model.removeprefix("tiny-"))
    kernel = serving_few("attention_prefill", dtype="bf16", head_size=head_size, keys="packed")
    launched = {
        name: count - before.launches.get(name, 0) for name, count in after.launches.items()
    }
    calls, linear_calls = (
        after.routes[route]["calls"]
        - (before.routes[route]["calls"] if route in before.routes else 0)
        for route in ("attention", "linear")
    )
    gemms = sum(launched.pop(name) for name in list(launched) if name.startswith("gemm_bf16_"))
    assert {name: count for name, count in launched.items() if count} == {kernel.name: calls}
    assert calls >= after.layers
    assert gemms == linear_calls > calls


def assert_fresh_rows_routed(result: ScenarioResult) -> None:
    """At least 99 % of the tokens in rows that begin a prompt, by the scheduler's own count."""
    batches = result.rounds[-1].batches
    assert batches is not None
    [worker] = result.rounds[-1].workers
    attention = worker.routes["attention"]
    served = attention["tokens"]
    if "attention" in result.start[0].routes:
        served -= result.start[0].routes["attention"]["tokens"]
    fresh = worker.layers * sum(batch.fresh_tokens for batch in batches)
    assert served >= ROUTED_SHARE * fresh > 0, (served, fresh, worker.routes)
    assert any(CPU_ATTN_KEYS in why for why in attention["fallbacks"]), attention
