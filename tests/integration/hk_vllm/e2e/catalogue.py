"""The scenarios that stock vLLM and HK both serve, and the traffic that each is made to meet."""

from __future__ import annotations

from typing import Any

from tests.integration.shared.e2e import case as shared
from tests.integration.shared.e2e.case import MODELS
from tests.integration.shared.e2e.prompts import MUTATIONS, Prompts, prefix_rounds
from tests.integration.shared.e2e.scenario import Round, Scenario


class Case(shared.Case):
    block = "block"

    def scenario(self, checkpoint: str) -> Scenario:
        engine, rounds = TRAFFIC[self.kind](Prompts(self.model, checkpoint))
        engine = {**engine, "block_size": self.block_size}
        return Scenario(str(self), checkpoint, rounds, self.dtype, engine)


Traffic = tuple[dict[str, Any], list[Round]]


def whole(prompts: Prompts) -> Traffic:
    """Fresh prefills only: every prompt in one piece, several in one step."""
    return {"max_num_batched_tokens": 1024}, [Round(prompts.of(prompts.lengths()))]


def custom(prompts: Prompts) -> Traffic:
    """`--attention-backend CUSTOM` means the platform's own choice, wrapped."""
    engine, rounds = whole(prompts)
    return {**engine, "attention_backend": "CUSTOM"}, rounds


CHUNKED = {"max_num_batched_tokens": 80, "max_num_seqs": 4, "enable_prefix_caching": False}
"""Prompts are cut into pieces of at most 80 tokens that share steps with decodes."""


def chunked(prompts: Prompts) -> Traffic:
    """Chunked prefill: extends, and steps that mix decodes, extends and fresh rows."""
    return CHUNKED, [Round(prompts.of(prompts.lengths()))]


def prefix(prompts: Prompts) -> Traffic:
    """A second round that finds its prefix cached and extends it, by 2 tokens up to 90.

    vLLM reads no cached prefix for a teacher-forced prompt, so what comes after the prefix is
    scored through many prompts that end at different places, each by the tokens it generates.
    """
    return {"enable_prefix_caching": True}, prefix_rounds(prompts)


def preempted(prompts: Prompts) -> Traffic:
    """A cache too small for its requests: some are thrown out and computed again."""
    engine = {"num_gpu_blocks_override": 10, "max_model_len": 256, "max_num_seqs": 4}
    rounds = [Round(prompts.of([61, 45, 64, 50]), max_tokens=60, teacher_forced=False)]
    return {**engine, "max_num_batched_tokens": 256}, rounds


def faults_whole(prompts: Prompts) -> Traffic:
    """Fresh prefills, once with every fault that they can have."""
    engine, [healthy] = whole(prompts)
    engine["enable_prefix_caching"] = False  # or a round would find what a fault left behind
    return engine, [Round(healthy.prompts, mutation=fault) for fault in MUTATIONS[:-1]]


def faults_chunked(prompts: Prompts) -> Traffic:
    """Chunked prefill, once with every fault."""
    engine, [healthy] = chunked(prompts)
    return engine, [Round(healthy.prompts, mutation=fault) for fault in MUTATIONS]


def faults_prefix(prompts: Prompts) -> Traffic:
    """The cached prefix ignored where prefix caching, not chunking, has put it there."""
    return {"enable_prefix_caching": True}, prefix_rounds(prompts, "ignored_prefix")


TRAFFIC = {
    traffic.__name__: traffic
    for traffic in (
        whole,
        custom,
        chunked,
        prefix,
        preempted,
        faults_whole,
        faults_chunked,
        faults_prefix,
    )
}


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
EMULATED = [case for case in HALF if case.model != "smollm2" and case.dtype == "bfloat16"]
EMULATED = [case for case in EMULATED if case.kind in ("whole", "chunked")]
"""Those that the emulated device serves too: small, and in a dtype of the GPU kernels."""
FAULTY = [
    Case("tiny-64", "float32", "faults_whole", 128),
    *(Case(model, "float32", "faults_chunked", 32) for model in MODELS),
    *(Case(model, "float32", "faults_prefix", 32) for model in MODELS[:2]),
    *(Case(model, "bfloat16", "faults_chunked", 32) for model in MODELS[:2]),
]
