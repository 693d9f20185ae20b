"""Engines that run in one variant only, and engines under each kind of traffic.

The former are stock, spawned, split over ranks, under torch.compile, or with something in HK's way.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.hk_vllm.e2e.engine import COMPILED, MEASURED, SPAWNED, serve
from tests.integration.shared.e2e import singles
from tests.integration.shared.e2e.case import MODELS, Case, assert_as_near, assert_equal, assert_met
from tests.integration.shared.e2e.compare import assert_routed, assert_true_answers
from tests.integration.shared.e2e.engine import HK, Checkpoint, Engines, Reader
from tests.integration.shared.e2e.prompts import Prompts, prefix_rounds
from tests.integration.shared.e2e.scenario import Round, Scenario
from tests.integration.shared.e2e.singles import (
    WORDS,
    Single,
    assert_checked,
    assert_long,
    assert_ranks_measured,
    assert_serves_and_says_why,
    assert_stock,
)
from tests.models import TINY_LAYERS

CHUNKED = {"max_num_batched_tokens": 80, "max_num_seqs": 4, "enable_prefix_caching": False}
"""Prompts are cut into pieces of at most 80 tokens that share steps with decodes."""
PREFIX = {"enable_prefix_caching": True}
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


@pytest.fixture(scope="module")
def served(checkpoint: Checkpoint, folder: Path) -> Reader:
    """A reader of what each engine of `SINGLES` left behind."""
    model = checkpoint("tiny-64")
    asked = (single.asked(name, model, CHUNKED) for name, single in SINGLES.items())
    return serve(asked, folder / "singles", {}).of


@pytest.mark.engine_proof
@pytest.mark.parametrize("name", ["backend-unset", "backend-0"])
def test_without_hk_backend(name: str, served: Reader) -> None:
    """vLLM is stock, bit for bit, and nothing of HK is even imported."""
    assert_stock(served(name), served("without-plugin"))


# -- HK must step aside

REASONS = {
    **WORDS,
    "engine-unknown": ["AttentionMetadataBuilder.build", "shared_prefix", "common_prefix_len"],
    "parent-unknown": ["CPUAttentionMetadataBuilder.build", "prefix", "common_prefix_len"],
}


@pytest.mark.engine_proof
@pytest.mark.parametrize("name", REASONS)
def test_serves_and_says_why(name: str, served: Reader, checkpoint: Checkpoint) -> None:
    assert_serves_and_says_why(name, REASONS[name], served(name), checkpoint("tiny-64"))


@pytest.mark.engine_proof
def test_strict_refuses_to_start(served: Reader) -> None:
    """HK_STRICT=1 makes an error of a layer that would fall back, and the error says why."""
    error = served("strict").error
    assert "HK_STRICT=1" in error
    assert "hk_backend._cpu cannot be loaded" in error


@pytest.mark.engine_proof
def test_shadow_check(served: Reader, checkpoint: Checkpoint) -> None:
    process = served("checked")
    assert_checked(process, checkpoint("tiny-64"), "ERROR")
    linear = process.only.rounds[-1].workers[0].routes["linear"]
    assert linear["on"]
    assert linear["checked_calls"] == linear["calls"] + linear["dummy_calls"] > 0
    assert 0 < linear["max_check_error"] < 1e-5


# -- processes, and torch.compile


@pytest.mark.engine_proof
@pytest.mark.parametrize(("name", "ranks"), [("spawned", 1), ("tensor-parallel", 2)])
def test_long(name: str, ranks: int, served: Reader, checkpoint: Checkpoint) -> None:
    """Every rank has chunked prefill, a cached prefix, and a fault that shows."""
    assert_long(served(name), ranks, checkpoint("tiny-64"))
    result = served(name).only
    # each rank computes all but cached tokens and single ones left over
    asked = [answer for item in result.rounds for answer in item.answers]
    new_tokens = sum(len(answer.prompt) - answer.cached_tokens for answer in asked)
    for before, worker in zip(result.start, result.rounds[-1].workers, strict=True):
        linear = worker.routes["linear"]  # shards of every layer, and of the LM head
        assert (linear["layers"], linear["layers_left"]) == (4 * TINY_LAYERS + 1, {})
        assert linear["tokens"] > 0
        warm_up = before.routes.get("attention", {"tokens": 0})["tokens"]
        served_tokens = worker.routes["attention"]["tokens"] - warm_up
        assert 0.95 * new_tokens <= served_tokens / worker.layers <= new_tokens


@pytest.mark.engine_proof
def test_ranks_that_measure(served: Reader, checkpoint: Checkpoint) -> None:
    assert_ranks_measured(served, checkpoint("tiny-64"))


@pytest.mark.engine_proof
def test_compiled(served: Reader, checkpoint: Checkpoint) -> None:
    """A model that went through torch.compile gives the same answers."""
    result = served("compiled").only
    assert served("compiled").lines("saved AOT compiled function"), "nothing was compiled"
    assert_routed(result)
    routes = result.rounds[-1].workers[0].routes
    # counted at every call, not once when Python was traced: four layers for each attention
    assert routes["linear"]["tokens"] >= 4 * routes["attention"]["tokens"] > 0
    for item in result.rounds:
        assert_true_answers(item.answers, checkpoint("tiny-64"))


# -- traffic of each kind: HK's answers are those of transformers and stock vLLM


def traffic(kind: str, prompts: Prompts) -> tuple[dict[str, Any], list[Round]]:
    """The engine's arguments and its rounds."""
    if kind == "preempted":  # a small cache: some requests are computed twice
        engine = {"num_gpu_blocks_override": 10, "max_model_len": 256, "max_num_seqs": 4}
        asked = prompts.of([61, 45, 64, 50])
        rounds = [Round(asked, max_tokens=60, teacher_forced=False)]
        return {**engine, "max_num_batched_tokens": 256}, rounds
    if kind == "prefix":
        # vLLM reads no cached prefix for a prompt that is scored. So many prompts that end at
        # different places score what comes after the prefix, by the tokens they generate.
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


@pytest.fixture(scope="module")
def stock(checkpoint: Checkpoint, folder: Path) -> Engines:
    """Engines of vLLM alone for the cases in half precision."""
    return serve((of_case(case, checkpoint) for case in HALF), folder / "stock", {})


@pytest.fixture(scope="module")
def hk(checkpoint: Checkpoint, folder: Path) -> Engines:
    """Engines with HK for all cases."""
    return serve((of_case(case, checkpoint) for case in FLOAT32 + HALF), folder / "hk", HK)


@pytest.mark.engine_proof
@pytest.mark.parametrize("case", FLOAT32, ids=str)
def test_float32(case: Case, hk: Engines, checkpoint: Checkpoint) -> None:
    """`--attention-backend CUSTOM` means the platform's own choice, wrapped."""
    assert_met(case.kind.replace("custom", "whole"), hk[str(case)])
    assert_equal(hk[str(case)], checkpoint(case.model))


@pytest.mark.held
@pytest.mark.engine_proof
@pytest.mark.parametrize("case", HALF, ids=str)
def test_half_precision(case: Case, hk: Engines, stock: Engines, checkpoint: Checkpoint) -> None:
    assert_met(case.kind, hk[str(case)])
    assert_as_near(hk[str(case)], stock[str(case)], checkpoint(case.model))
