"""The engines by name: those that serve a kind of traffic, and those with an environment of their
own."""

from __future__ import annotations

from typing import Any

from tests.integration.hk_vllm.e2e.engine import COMPILED, MEASURED, SPAWNED
from tests.integration.shared.e2e import singles
from tests.integration.shared.e2e.case import MODELS, Case
from tests.integration.shared.e2e.engine import HK, Checkpoint
from tests.integration.shared.e2e.prompts import Prompts, prefix_rounds
from tests.integration.shared.e2e.scenario import Round, Scenario
from tests.integration.shared.e2e.singles import Single

CHUNKED = {"max_num_batched_tokens": 80, "max_num_seqs": 4, "enable_prefix_caching": False}
"""Prompts are cut into pieces of at most 80 tokens that share steps with decodes."""
PREFIX = {"enable_prefix_caching": True}


def traffic(kind: str, prompts: Prompts) -> tuple[dict[str, Any], list[Round]]:
    """The engine's arguments and its rounds."""
    if kind == "preempted":  # a cache too small: some requests are thrown out and computed again
        engine = {"num_gpu_blocks_override": 10, "max_model_len": 256, "max_num_seqs": 4}
        asked = prompts.of([61, 45, 64, 50])
        rounds = [Round(asked, max_tokens=60, teacher_forced=False)]
        return {**engine, "max_num_batched_tokens": 256}, rounds
    if kind == "prefix":
        # vLLM reads no cached prefix for a prompt that is scored: what comes after the prefix is
        # scored through many prompts that end at different places, by the tokens they generate
        return PREFIX, prefix_rounds(prompts)
    rounds = [Round(prompts.of(prompts.lengths()))]
    if kind == "chunked":
        return CHUNKED, rounds
    whole = {"max_num_batched_tokens": 1024}
    return whole | ({"attention_backend": "CUSTOM"} if kind == "custom" else {}), rounds


def of_case(case: Case, checkpoint: Checkpoint) -> Scenario:
    model = checkpoint(case.model)
    engine, rounds = traffic(case.kind, Prompts(case.model, model))
    engine = {**engine, "block_size": case.block_size}
    return Scenario(str(case), model, rounds, case.dtype, engine)


FLOAT32 = [
    *(Case(model, "float32", "whole", 128) for model in MODELS),
    *(Case(model, "float32", "chunked", 32) for model in MODELS),
    *(Case(model, "float32", "prefix", 32) for model in MODELS),
    Case("tiny-64", "float32", "custom", 64),
    Case("tiny-64", "float32", "chunked", 128),
    Case("tiny-128", "float32", "prefix", 128),
    *(Case(model, "float32", "preempted", 32) for model in MODELS[:2]),
]
HALF = [
    *(Case(model, "bfloat16", "whole", 128) for model in MODELS),
    *(Case(model, "bfloat16", "chunked", 32) for model in MODELS),
    *(Case(model, "bfloat16", "prefix", 32) for model in MODELS[:2]),
    *(Case(model, "float16", "chunked", 32) for model in MODELS[:2]),
]
RANKS = HK | SPAWNED | {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "0|1"}
TWO = {"tensor_parallel_size": 2}
SINGLES = singles.SINGLES | {
    "without-plugin": Single({"VLLM_PLUGINS": ""}),
    "measured-ranks": Single(RANKS | MEASURED, TWO),
    "spawned": Single(HK | SPAWNED, PREFIX, long=True),
    "tensor-parallel": Single(RANKS, TWO | PREFIX, long=True),
    "compiled": Single(HK | COMPILED, {"enforce_eager": False}),
    "parent-unknown": Single(HK, sabotage="parent_outside_contract"),
}
