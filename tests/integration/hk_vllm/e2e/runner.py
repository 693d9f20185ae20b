"""Serves a scenario with a vLLM engine, in a fork (shared/e2e/forks.py), and writes what it saw.

The environment decides whether HK is in it. vLLM is imported inside functions, because spawned
workers import this module too.
"""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.hk_vllm.e2e.sabotage import SABOTAGES
from tests.integration.shared.e2e.inside import hide_instructions, install_mutation, look
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

VLLM = (
    "vllm.entrypoints.llm",
    "vllm.v1.engine.core",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.executor.uniproc_executor",
    "vllm.model_executor.models.llama",
    "vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors",
)
"""Modules of vLLM to import before the fork, but no plugin: vLLM loads those with an engine."""
MODEL = "LlamaForCausalLM"
DEFAULTS: dict[str, Any] = {
    "enforce_eager": True,
    "max_model_len": 1024,
    "block_size": 32,
    "kv_cache_memory_bytes": 64 << 20,
    "max_num_seqs": 8,
    "seed": 0,
}


def prepare() -> None:
    """Import what every engine needs, before the process forks."""
    hide_instructions()
    for module in VLLM:
        importlib.import_module(module)
    start_engines_quickly()


def start_engines_quickly() -> None:
    """Do once what every engine's start would repeat."""
    from vllm.model_executor.models import registry
    from vllm.platforms import current_platform

    elsewhere, registry._run_in_subprocess = registry._run_in_subprocess, lambda work: work()
    registry._try_inspect_model_cls(MODEL, registry.ModelRegistry.models[MODEL])  # keeps the result
    registry._run_in_subprocess = elsewhere  # vLLM's own would import vLLM again
    current_platform.register_triton_kernel_overrides()  # searches all imported modules
    type(current_platform).register_triton_kernel_overrides = staticmethod(lambda: None)
    gc.unfreeze = lambda: None  # an engine that ends would collect all imported objects, four times


def main(asked: Path, answered: Path) -> None:
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # torch read this at its import
    torch._dynamo.config.disable = os.environ.get("TORCHDYNAMO_DISABLE") == "1"  # likewise
    save([serve(scenario) for scenario in load(Scenario, asked)], answered)


def serve(scenario: Scenario) -> ScenarioResult:
    """Start the engine, serve every round, shut it down."""
    from vllm import LLM

    if scenario.sabotage:
        SABOTAGES[scenario.sabotage]()
    arguments = {**DEFAULTS, "dtype": scenario.dtype, **scenario.engine}
    note_start(f"vLLM, {scenario.name}")
    try:
        llm = LLM(scenario.model, disable_log_stats=False, **arguments)
    except Exception as error:
        return ScenarioResult(scenario.name, [], [], f"{type(error).__name__}: {error}")
    try:
        start = llm.collective_rpc(inspect_worker)
        rounds = [serve_round(llm, item) for item in scenario.rounds]
    finally:
        shut_down(llm)
    return ScenarioResult(scenario.name, start, rounds)


def serve_round(llm: Any, item: Round) -> RoundResult:
    """Serve one `generate`, with the round's fault in place while it runs."""
    from vllm import SamplingParams

    sampling = SamplingParams(
        temperature=0,
        max_tokens=item.max_tokens,
        ignore_eos=item.ignore_eos,
        logprobs=None if item.tokens_only else 0,
        prompt_logprobs=0 if item.teacher_forced and not item.tokens_only else None,
        detokenize=False,
    )
    preemptions = preemptions_of(llm)
    llm.collective_rpc(install_in_worker, args=(item.mutation,))
    prompts = [{"prompt_token_ids": tokens} for tokens in item.prompts]
    with watched(llm) as batches:
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
    workers = llm.collective_rpc(inspect_worker)
    llm.collective_rpc(install_in_worker, args=("",))
    answers, preemptions = [answer(output) for output in outputs], preemptions_of(llm) - preemptions
    return RoundResult(answers, preemptions, workers, batches)


def answer(output: Any) -> Answer:
    completion = output.outputs[0]
    prompt, tokens = list(output.prompt_token_ids), list(completion.token_ids)
    scored = output.prompt_logprobs or [None]

    def logprobs(entries: Any, of: list[int]) -> list[float]:
        return [entry[token].logprob for entry, token in zip(entries, of, strict=False)]

    return Answer(
        prompt=prompt,
        tokens=tokens,
        logprobs=logprobs(completion.logprobs or [], tokens),
        prompt_logprobs=logprobs(scored[1:], prompt[1:]),
        cached_tokens=output.num_cached_tokens or 0,
    )


@contextmanager
def watched(llm: Any) -> Iterator[list[Batch] | None]:
    """Note the composition of every step, taken from the scheduler, if it is in this process."""
    core = getattr(llm.llm_engine.engine_core, "engine_core", None)
    if core is None:
        yield None
        return
    schedule = core.scheduler.schedule
    batches: list[Batch] = []

    def noted(*args: Any, **kwargs: Any) -> Any:
        step = schedule(*args, **kwargs)
        computed = {new.req_id: new.num_computed_tokens for new in step.scheduled_new_reqs}
        cached = step.scheduled_cached_reqs
        computed |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        rows = [(count, computed[name]) for name, count in step.num_scheduled_tokens.items()]
        batches.append(Batch.of(rows))
        return step

    core.scheduler.schedule = noted
    yield batches
    core.scheduler.schedule = schedule


def preemptions_of(llm: Any) -> int:
    for metric in llm.get_metrics():
        if metric.name == "vllm:num_preemptions":
            return int(metric.value)
    raise RuntimeError("vLLM no longer reports vllm:num_preemptions")


def inspect_worker(worker: Any) -> Worker:
    """Runs in the worker's process."""
    from vllm.config import get_layers_from_vllm_config
    from vllm.model_executor.layers.attention import Attention

    return look(len(get_layers_from_vllm_config(worker.vllm_config, Attention)))


def install_in_worker(worker: Any, name: str) -> None:
    """Runs in the worker's process."""
    install_mutation(name)


def shut_down(llm: Any) -> None:
    from vllm.distributed import cleanup_dist_env_and_memory

    llm.llm_engine.engine_core.shutdown()
    del llm
    gc.collect()
    cleanup_dist_env_and_memory()
