"""Whole engines over SGLang's backends for ROCm and a pool of FP8 codes, in pages of one token.

Chunks share steps with decode rows, and MI355X machine code computes HK's prefill. The engines run
on SGLang's CPU platform, because on ROCm compiled kernels surround attention. So these tests name
the backend, `aiter`, which ROCm has by default. e2e/test_each_time.py has a pool in the model's
dtype.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.integration.hk_sglang.e2e.catalogue import CHUNKED, ON_EMULATED_GPU
from tests.integration.shared.e2e.compare import assert_decoded, assert_routed
from tests.integration.shared.e2e.engine import HK, Checkpoint, Engines
from tests.integration.shared.e2e.narrow_cache import stored
from tests.integration.shared.e2e.oracle import Cache
from tests.integration.shared.e2e.prompts import SMALL
from tests.integration.shared.e2e.rounding import assert_as_exact, assert_same_numbers, error_of
from tests.integration.shared.e2e.scenario import Round, Scenario
from tests.kernels.catalogues import serving_few
from tests.models import random_prompts

ROUNDS = [
    Round(random_prompts(SMALL, seed=9), max_tokens=4),
    # SGLang lets decode rows into a chunk's step where nobody asked for log-probabilities
    Round(random_prompts(SMALL, seed=10), max_tokens=6, tokens_only=True),
    Round(random_prompts(SMALL, seed=9), max_tokens=4, mutation="PageOffByOne"),
]
FP8 = {"kv_cache_dtype": "fp8_e4m3", "chunked_prefill_size": 64}
"""FP8 without scales, in chunks so small that most tokens are computed behind cached ones."""
CODES = Cache(stored(torch.float8_e4m3fn), stored(torch.float8_e4m3fn))


@pytest.mark.engine_proof
@pytest.mark.parametrize("parent", ["aiter", "triton"])
def test_pages(parent: str, engines: Engines, checkpoint: Checkpoint) -> None:
    """HK computes every prompt's token. A fault then reads each page as the one behind it.

    HK counts the faulty calls as its own, and their answers are far from the truth. The same parent
    also serves the cpu device, since `aiter` rounds the queries that it decodes.
    """
    flags = CHUNKED | {"attention_backend": parent, "prefill_attention_backend": "hk"} | FP8
    model = checkpoint("tiny-64")
    for device, rounds in (("emulated:gfx950", ROUNDS), ("cpu", ROUNDS[:1])):
        environment = HK | ON_EMULATED_GPU | {"HK_DEVICE": device}
        name = f"{parent} on {device}"
        engines.add([Scenario(name, model, rounds, "bfloat16", flags, "", environment)])
    found, cpu = engines[f"{parent} on emulated:gfx950"], engines[f"{parent} on cpu"]
    assert_routed(found)
    assert_decoded(found)
    healthy, mixed, faulty = found.rounds
    assert any(step.decodes and step.extends for step in mixed.batches or [])
    facts = {"dtype": "bf16", "keys": "tokens", "stored": "e4m3"}  # pages of one token
    for operator in ("attention_prefill", "attention_decode"):
        kernel = serving_few(operator, head_size=64, **facts)
        assert healthy.workers[0].launches[kernel.name] > 0
    assert not mixed.workers[0].mutated_calls
    assert_same_numbers(replace(found, rounds=[healthy]), cpu, model, CODES)
    assert faulty.workers[0].mutated_calls
    errors = (error_of(rounds, model, CODES) for rounds in ([faulty], cpu.rounds))
    with pytest.raises(AssertionError, match=r"mean error .*, stock has"):
        assert_as_exact(*errors)
