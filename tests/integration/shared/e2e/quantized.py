"""Checks of an engine's answers over a quantised checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pytest
import torch

from hk_backend.routing.shadow_check import tolerance
from tests.integration.shared.e2e.compare import assert_true_logprobs
from tests.integration.shared.e2e.oracle import answered
from tests.integration.shared.e2e.rounding import Errors, assert_as_exact, error_of
from tests.integration.shared.e2e.scenario import RoundResult, ScenarioResult
from tests.models import TINY_LAYERS

LAYERS = 4 * TINY_LAYERS + 1
"""The tiny Llama's linear layers: QKV, output, gate-up and down of each block, and the head."""


class Quantised(Protocol):
    """A scheme; `activations`: how its layers round their inputs, as in `shared.checkpoints`."""

    @property
    def activations(self) -> str: ...


def error_in(arithmetic: str, result: ScenarioResult, truth: Path) -> Errors:
    """Distance from the truth to transformers in another arithmetic, on the same tokens."""
    rounds = [
        RoundResult(
            [answered(str(truth), answer, arithmetic) for answer in item.answers], 0, [], None
        )
        for item in result.rounds
    ]
    return error_of(rounds, str(truth))


def assert_true(scheme: Quantised, result: ScenarioResult, truth: Path, dtype: str) -> None:
    """Hold that the answers are what the checkpoint means.

    In float32 they are within `LOGPROB_TOLERANCE`, if inputs are not rounded to codes. Otherwise
    they are as near as the dtype's own rounding allows. An engine that forgot to round the inputs
    would not pass.
    """
    rounds = scheme.activations not in ("none", "rotated")
    if not rounds and dtype == "float32":
        for item in result.rounds:
            assert_true_logprobs(item.answers, str(truth))
        return
    allowed = error_in(dtype, result, truth)
    assert_as_exact(error_of(result.rounds, str(truth)), allowed)
    if rounds and dtype == "float32":
        with pytest.raises(AssertionError, match="error"):
            assert_as_exact(error_in("unrounded", result, truth), allowed)


def assert_checked(result: ScenarioResult) -> None:
    """Hold that HK_CHECK compared every call with the reference; an error switches a route off."""
    for worker in result.rounds[-1].workers:
        for route in ("linear", "attention"):
            found = worker.routes[route]
            assert found["on"], found["why"]
            assert found["checked_calls"] >= found["calls"] > 0
            assert 0 < found["max_check_error"] <= tolerance(torch.bfloat16)


def assert_on_gfx950(result: ScenarioResult) -> None:
    """Hold that the emulator launched one kernel for every call, of both routes, in each
    process.
    """
    for before, after in zip(result.start, result.rounds[-1].workers, strict=True):
        for route, kernels in (("linear", "gemm_"), ("attention", "attention_prefill_")):
            calls = after.routes[route]["calls"] - before.routes.get(route, {"calls": 0})["calls"]
            launched = sum(
                count - before.launches.get(name, 0)
                for name, count in after.launches.items()
                if name.startswith(kernels)
            )
            assert launched == calls > 0, (route, launched, calls)


def assert_all_by_hk(result: ScenarioResult) -> None:
    """Hold that HK computed every linear layer of the model, and every token of every call."""
    worker = result.rounds[-1].workers[0]
    linear = worker.routes["linear"]
    assert linear["on"], linear["why"]
    assert linear["layers"] == LAYERS
    assert not linear["layers_left"], linear["layers_left"]
    assert not linear["fallbacks"], linear["fallbacks"]
    assert linear["tokens"] > 0
