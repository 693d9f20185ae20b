"""Deliberate faults in how HK rotates a layer's inputs: each must turn an engine's answers red."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hk_backend.ops import PackedWeight
from hk_backend.ops import linear as healthy
from hk_backend.terms.weight_format import ROTATED
from tests.integration.shared.checkpoints import SCHEMES, Made
from tests.integration.shared.e2e.quantized import assert_all_by_hk, assert_true, error_in
from tests.integration.shared.e2e.rounding import assert_as_exact, error_of
from tests.integration.shared.e2e.scenario import Round, Scenario, ScenarioResult
from tests.models import random_prompts

SCHEME = "ct-mxfp4-rotated"
LENGTHS = [7, 64, 100]


def not_rotated(x: torch.Tensor, weight: PackedWeight, *rest: Any) -> torch.Tensor:
    """The inputs only rounded."""
    rounded = ROTATED.get(weight.activations, weight.activations)
    return healthy(x, replace(weight, activations=rounded, rotation=0), *rest)


def half_a_block(x: torch.Tensor, weight: PackedWeight, *rest: Any) -> torch.Tensor:
    """Half as many channels together."""
    return healthy(x, replace(weight, rotation=weight.rotation // 2), *rest)


ROTATION_FAULTS: dict[str, Callable[..., torch.Tensor]] = {
    fault.__name__: fault for fault in (not_rotated, half_a_block)
}


def scenario(name: str, made: Made, engine: dict[str, Any]) -> Scenario:
    """Of a tiny Llama in float32: once as it is, then with every fault."""
    prompts = random_prompts(LENGTHS, seed=11)
    faulty = [Round(prompts, 1, mutation=fault) for fault in ROTATION_FAULTS]
    rounds = [Round(prompts, 3), *faulty]
    return Scenario(name, str(made.checkpoint), rounds, "float32", engine, "float32_everywhere")


def assert_right_and_red(found: ScenarioResult, truth: Path) -> None:
    """The healthy round is what the checkpoint means, all by HK; the others are not."""
    right, *faulty = found.rounds
    assert_all_by_hk(replace(found, rounds=[right]))
    assert_true(SCHEMES[SCHEME], replace(found, rounds=[right]), truth, "float32")
    allowed = error_in("float32", replace(found, rounds=[right]), truth)
    mutated = [0, *(item.workers[0].mutated_calls for item in faulty)]
    assert mutated == sorted(set(mutated)), "a fault that was not in place"
    for item in faulty:
        with pytest.raises(AssertionError, match=r"mean error .*, stock has"):
            assert_as_exact(error_of([item], str(truth)), allowed)
