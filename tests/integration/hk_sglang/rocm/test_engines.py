"""Whole engines over SGLang's backends for ROCm: pages of one token, chunks that share steps with
decode rows, HK's prefill by MI355X machine code.

On SGLang's CPU platform: what surrounds attention on ROCm are compiled kernels. So the backend,
`aiter` by default on ROCm, is named here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.integration.hk_sglang.e2e.catalogue import CHUNKED, INTERPRETED
from tests.integration.shared.e2e.compare import assert_routed
from tests.integration.shared.e2e.engine import HK, Checkpoint, Engines
from tests.integration.shared.e2e.narrow_cache import stored
from tests.integration.shared.e2e.oracle import Cache
from tests.integration.shared.e2e.prompts import SMALL
from tests.integration.shared.e2e.rounding import assert_as_exact, assert_same_numbers, error_of
from tests.integration.shared.e2e.scenario import Round, Scenario, ScenarioResult
from tests.kernels.catalogues import serving_few
from tests.models import random_prompts

pytestmark = pytest.mark.engine_proof

PARENTS = ("aiter", "triton")
ROUNDS = [
    Round(random_prompts(SMALL, seed=9), max_tokens=4),
    # SGLang lets decode rows into a chunk's step where nobody asked for log-probabilities
    Round(random_prompts(SMALL, seed=10), max_tokens=6, tokens_only=True),
    Round(random_prompts(SMALL, seed=9), max_tokens=4, mutation="PageOffByOne"),
]
FP8 = {"kv_cache_dtype": "fp8_e4m3", "chunked_prefill_size": 64}
"""Asked for without scales, in chunks so small that most tokens are computed behind cached ones."""
CODES = Cache(stored(torch.float8_e4m3fn), stored(torch.float8_e4m3fn))
Serve = Callable[..., ScenarioResult]


@pytest.fixture
def engine(engines: Engines, checkpoint: Checkpoint) -> Serve:
    """What one answers over a parent, with HK on a device."""

    def run(parent: str, device: str, rounds: list[Round], **more: Any) -> ScenarioResult:
        name = "-".join([parent, device.partition(":")[0], *more])
        flags = {"attention_backend": parent, "prefill_attention_backend": "hk", **more}
        model, asked = checkpoint("tiny-64"), CHUNKED | flags
        named = HK | INTERPRETED | {"HK_DEVICE": device}
        engines.add([Scenario(name, model, rounds, "bfloat16", asked, "", named)])
        return engines[name]

    return run


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("parent", PARENTS)
def test_pages(parent: str, fp8: bool, engine: Serve, checkpoint: Checkpoint) -> None:
    """Every prompt's token is HK's. Then each page is read as the one behind it, which HK counts as
    its own, and which is far from the truth. Over codes the same parent serves the cpu device:
    `aiter` rounds the queries that it decodes. `triton` takes its time, in Triton's interpreter."""
    pool = FP8 if fp8 else {}
    found, model = engine(parent, "emulated:gfx950", ROUNDS, **pool), checkpoint("tiny-64")
    cpu = engine(parent if fp8 else "aiter", "cpu", ROUNDS[:1], **pool)
    assert_routed(found)
    healthy, mixed, faulty = found.rounds
    assert any(step.decodes and step.extends for step in mixed.batches or [])
    stored_as, truth = ({"stored": "e4m3"}, CODES) if fp8 else ({}, None)
    facts = {"dtype": "bf16", "keys": "tokens", **stored_as}  # reads pages of one token
    kernel = serving_few("attention_prefill", head_size=64, **facts)
    assert healthy.workers[0].launches[kernel.name] > 0
    assert not mixed.workers[0].mutated_calls
    assert_same_numbers(replace(found, rounds=[healthy]), cpu, model, truth)
    assert faulty.workers[0].mutated_calls
    errors = (error_of(rounds, model, truth) for rounds in ([faulty], cpu.rounds))
    with pytest.raises(AssertionError, match=r"mean error .*, stock has"):
        assert_as_exact(*errors)
