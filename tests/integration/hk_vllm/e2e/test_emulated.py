"""vLLM serves, and MI355X machine code computes its prefill attention: HK_DEVICE=emulated:gfx950.

Beside it the same traffic with HK on the cpu device, and the truth: transformers in float32.
"""

from __future__ import annotations

import pytest

from tests.integration.hk_vllm.e2e.catalogue import EMULATED
from tests.integration.shared.e2e.case import Case, assert_met
from tests.integration.shared.e2e.compare import ROUTED_SHARE, assert_replayed, assert_routed
from tests.integration.shared.e2e.engine import Checkpoint, Engines, Served
from tests.integration.shared.e2e.rounding import (
    assert_agree,
    assert_as_exact,
    assert_same_numbers,
    error_of,
)
from tests.integration.shared.e2e.scenario import ScenarioResult
from tests.kernels.catalogues import serving_few

pytestmark = pytest.mark.engine_proof

CPU_ATTN_KEYS = 'cache with keys as "B H D N"'


@pytest.mark.parametrize("case", EMULATED, ids=str)
def test_prompts(case: Case, emulated: Engines, hk: Engines, checkpoint: Checkpoint) -> None:
    """Computed by the code objects, with the log-probabilities of the cpu device. CPU_ATTN's own
    cache is no GPU's: fresh rows are HK's, extends vLLM's, with the reason."""
    found, cpu = emulated[str(case)], hk[str(case)]
    assert_met(case.kind, found)
    (assert_routed if case.kind == "whole" else assert_fresh_rows_routed)(found)
    assert_launched(case, found)
    assert_same_numbers(found, cpu, checkpoint(case.model))
    log = emulated.of(str(case))
    assert log.lines("prefill attention is computed by HK on emulated:gfx950")
    assert log.lines("emulated:gfx950 executes machine code on the CPU: slow")
    assert not hk.of(str(case)).lines("emulated")


# -- the device or its kernels are not as they are: EMULATED's first case

CASE = EMULATED[0]


def test_linear_layers_in_graphs(emulated: Engines, hk: Engines, checkpoint: Checkpoint) -> None:
    """Captured once and replayed from step to step, between attention that is not."""
    replayed = emulated["linear_in_graphs"]
    assert_replayed(replayed)
    assert_same_numbers(replayed, hk[str(CASE)], checkpoint(CASE.model))


def test_a_kernel_that_computes_wrong_is_seen(
    emulated: Engines, hk: Engines, checkpoint: Checkpoint
) -> None:
    """The control: one instruction of the catalogue's file is another, and the tests above fail."""
    wrong, cpu, truth = emulated["kernel_computes_wrong"], hk[str(CASE)], checkpoint(CASE.model)
    assert_routed(wrong)
    assert_launched(CASE, wrong)
    with pytest.raises(AssertionError, match=r"mean error .* between the two, rounding gives"):
        assert_agree(wrong.rounds, cpu.rounds, truth)
    with pytest.raises(AssertionError, match=r"error .*, stock has"):
        assert_as_exact(error_of(wrong.rounds, truth), error_of(cpu.rounds, truth))


@pytest.mark.parametrize("sabotage", ["kernel_does_not_wait", "kernel_file_damaged"])
def test_a_kernel_that_is_refused(
    sabotage: str, emulated: Engines, hk: Engines, checkpoint: Checkpoint
) -> None:
    """No token of the answers is its own: vLLM computes, and says why."""
    log = emulated.of(sabotage)
    attention = log.only.rounds[-1].workers[0].routes["attention"]
    assert attention["tokens"] == 0
    if sabotage == "kernel_does_not_wait":
        assert_switched_off(attention, log)
    else:
        assert_never_on(attention, log)
    assert_same_numbers(log.only, hk[str(CASE)], checkpoint(CASE.model))


def assert_switched_off(attention: dict[str, str], log: Served) -> None:
    """By the emulator, which finds what a kernel without waits meets first: a result that it reads,
    or one that it writes over."""
    why = "EmulatorError: the emulator found: "
    found = attention["why"].partition(why)[2]
    assert not attention["on"]
    assert found.startswith(("unwaited-", "overwritten-in-flight"))
    assert log.lines("route attention is switched off", why)


def assert_never_on(attention: dict[str, str], log: Served) -> None:
    """Found when the layers are made: they are vLLM's from the start."""
    [why] = attention["fallbacks"]
    assert why.startswith("attention_prefill_bf16_d64_packed cannot run on device 0 of emulated:")
    assert "sha256 is not the catalogue's" in why
    assert log.lines("layers left to vLLM's attention: attention_prefill", "sha256")


def assert_launched(case: Case, result: ScenarioResult) -> None:
    """Every call that HK counts was a launch of the model's kernel, as the emulator counts."""
    before, [after] = result.start[0], result.rounds[-1].workers
    head_size = int(case.model.removeprefix("tiny-"))
    kernel = serving_few("attention_prefill", dtype="bf16", head_size=head_size, keys="packed")
    launched = {
        name: count - before.launches.get(name, 0) for name, count in after.launches.items()
    }
    calls, linear_calls = (
        after.routes[route]["calls"] - before.routes.get(route, {"calls": 0})["calls"]
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
    served -= result.start[0].routes.get("attention", {"tokens": 0})["tokens"]
    fresh = worker.layers * sum(batch.fresh_tokens for batch in batches)
    assert served >= ROUTED_SHARE * fresh > 0, (served, fresh, worker.routes)
    assert any(CPU_ATTN_KEYS in why for why in attention["fallbacks"]), attention
