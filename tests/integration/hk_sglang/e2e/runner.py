"""Serves a scenario with an SGLang engine, in a fork (shared/e2e/forks.py), and writes what it saw.

The engine's scheduler and detokeniser are forked from it in turn. With TEST_SPAWN=1 they are
spawned, as SGLang has it. The process that is forked has imported SGLang and nothing of HK. On
SGLang's CPU platform it also has AITER's kernels, in torch. With TEST_TRITON=gfx950 the engine's
Triton kernels run on an emulated GPU.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
from pathlib import Path
from typing import Any

from tests.integration.hk_sglang.rocm import aiter_kernels, machine
from tests.integration.shared.e2e.scenario import (
    Answer,
    Batch,
    Round,
    RoundResult,
    Scenario,
    ScenarioResult,
    Worker,
    load,
    save,
)
from tests.starts import note_start

SGLANG = (
    "sglang.srt.entrypoints.engine",
    "sglang.srt.managers.scheduler",
    "sglang.srt.model_executor.model_runner",
    "sglang.srt.models.registry",
    "sglang.srt.dllm.algorithm",
)
DEFAULTS: dict[str, Any] = {
    "device": "cpu",
    "max_total_tokens": 4096,
    "max_running_requests": 8,
    "random_seed": 0,
    "log_level": "info",
    "skip_tokenizer_init": True,  # token ids in, token ids out
    "sleep_on_idle": True,  # else a scheduler without work takes a whole core
}


def prepare() -> None:
    """Import what every engine needs, before the process forks."""
    machine.stub(["aiter"])
    aiter_kernels.install()
    for module in SGLANG:
        importlib.import_module(module)
    from sglang.kernels.ops.quantization import fp8_kernel

    fp8_kernel.sgl_per_tensor_quant_fp8 = aiter_kernels.sgl_per_tensor_quant_fp8


def main(asked: Path, answered: Path) -> None:
    [scenario] = load(Scenario, asked)
    if os.environ.get("TEST_SPAWN") != "1":
        let_engines_fork()
    if arch := os.environ.get("TEST_TRITON"):
        from hk_backend.lab.foreign import triton_driver

        triton_driver.install(arch)
    save([serve(scenario, answered.parent)], answered)


def let_engines_fork() -> None:
    """Give SGLang "fork" where it asks for "spawn"."""
    choose = multiprocessing.set_start_method
    multiprocessing.set_start_method = lambda method, force=False: choose("fork", force)


def serve(scenario: Scenario, folder: Path) -> ScenarioResult:
    """Start the engine, serve every round, shut it down."""
    from tests.integration.hk_sglang.e2e.engine import ProbedEngine
    from tests.integration.hk_sglang.e2e.sabotage import SABOTAGES

    if scenario.sabotage:
        SABOTAGES[scenario.sabotage]()
    note_start(f"SGLang, {scenario.name}")
    arguments = {**DEFAULTS, "dtype": scenario.dtype, **scenario.engine}
    try:
        engine = ProbedEngine(model_path=scenario.model, **arguments)
    except Exception as error:
        return ScenarioResult(scenario.name, [], [], f"{type(error).__name__}: {error}")
    seen = folder / f"{scenario.name}.seen"
    start, _ = look(engine, seen)
    rounds = [serve_round(engine, item, seen) for item in scenario.rounds]
    engine.shutdown()
    return ScenarioResult(scenario.name, start, rounds)


def serve_round(engine: Any, item: Round, seen: Path) -> RoundResult:
    """Serve one `generate`, with the round's fault in place while it runs."""
    sampling = {
        "temperature": 0,
        "max_new_tokens": item.max_tokens,
        "ignore_eos": item.ignore_eos,
    }
    engine.collective_rpc("test_begin", mutation=item.mutation)
    outputs = engine.generate(
        input_ids=item.prompts,
        sampling_params=sampling,
        return_logprob=not item.tokens_only,
        logprob_start_len=0 if item.teacher_forced and not item.tokens_only else -1,
    )
    workers, batches = look(engine, seen)
    return RoundResult(
        answers=[
            answer(prompt, output, item)
            for prompt, output in zip(item.prompts, outputs, strict=True)
        ],
        preemptions=sum(output["meta_info"]["num_retractions"] for output in outputs),
        workers=workers,
        batches=batches,
    )


def answer(prompt: list[int], output: dict[str, Any], asked: Round) -> Answer:
    facts = output["meta_info"]
    generated, scored = facts.get("output_token_logprobs"), facts.get("input_token_logprobs")
    if not asked.teacher_forced:
        scored = None
    return Answer(
        prompt=prompt,
        tokens=output["output_ids"],
        logprobs=[entry[0] for entry in generated or []],
        prompt_logprobs=[entry[0] for entry in (scored or [])[1:]],
        cached_tokens=facts["cached_tokens"],
    )


def look(engine: Any, seen: Path) -> tuple[list[Worker], list[Batch]]:
    """Ask the scheduler of each rank about itself, and for its batches since the round began."""
    engine.collective_rpc("test_look", path=str(seen))
    files = sorted(seen.parent.glob(f"{seen.name}.*"))
    workers = [load(Worker, file)[0] for file in files if file.suffix != ".batches"]
    return workers, load(Batch, seen.with_name(f"{seen.name}.batches"))
