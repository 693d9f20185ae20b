"""Serves a scenario with a vLLM engine, in a fork (shared/e2e/forks.py); writes down what it saw.

The environment decides whether HK is in it. vLLM is imported inside functions: spawned workers
import this module too.
"""

from __future__ import annotations

import gc
import importlib
import os
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
"""Without a plugin: vLLM loads those with an engine."""
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
    """Before the process forks: what every engine needs."""
    hide_instructions()
    for module in VLLM:
        importlib.import_module(module)
    start_engines_quickly()


def start_engines_quickly() -> None:
    """What every engine's start repeats, done once."""
    from vllm.model_executor.models import registry
    from vllm.platforms import current_platform

    elsewhere, registry._run_in_subprocess = registry._run_in_subprocess, lambda work: work()
    registry._try_inspect_model_cls(MODEL, registry.ModelRegistry.models[MODEL])  # and keeps it
    registry._run_in_subprocess = elsewhere  # one that would import vLLM again
    current_platform.register_triton_kernel_overrides()  # searches all that was imported
    type(current_platform).register_triton_kernel_overrides = staticmethod(lambda: None)
    gc.unfreeze = lambda: None  # an engine that ends collects all that was imported, four times


def main(asked: Path, answered: Path) -> None:
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # read when torch was imported, as
    torch._dynamo.config.disable = os.environ.get("TORCHDYNAMO_DISABLE") == "1"  # was this
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
    """One `generate`, with its fault in place while it runs."""
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
    watch = Watch(llm)
    prompts = [{"prompt_token_ids": tokens} for tokens in item.prompts]
    outputs = llm.generate(prompts, sampling, use_tqdm=False)
    watch.end()
    workers = llm.collective_rpc(inspect_worker)
    llm.collective_rpc(install_in_worker, args=("",))
    return RoundResult(
        answers=[answer(output) for output in outputs],
        preemptions=preemptions_of(llm) - preemptions,
        workers=workers,
        batches=watch.batches,
    )


def answer(output: Any) -> Answer:
    completion = output.outputs[0]
    prompt = list(output.prompt_token_ids)
    tokens = list(completion.token_ids)
    scored = output.prompt_logprobs or [None]
    return Answer(
        prompt=prompt,
        tokens=tokens,
        logprobs=[
            entry[token].logprob
            for entry, token in zip(completion.logprobs or [], tokens, strict=False)
        ],
        prompt_logprobs=[
            entry[token].logprob for entry, token in zip(scored[1:], prompt[1:], strict=False)
        ],
        cached_tokens=output.num_cached_tokens or 0,
    )


class Watch:
    """Notes the composition of every step, taken from the scheduler of this process."""

    def __init__(self, llm: Any) -> None:
        core = getattr(llm.llm_engine.engine_core, "engine_core", None)
        self.batches: list[Batch] | None = None if core is None else []
        if core is not None:
            self._scheduler = core.scheduler
            self._schedule = core.scheduler.schedule
            core.scheduler.schedule = self._watched

    def end(self) -> None:
        if self.batches is not None:
            self._scheduler.schedule = self._schedule

    def _watched(self, *args: Any, **kwargs: Any) -> Any:
        step = self._schedule(*args, **kwargs)
        computed = {new.req_id: new.num_computed_tokens for new in step.scheduled_new_reqs}
        cached = step.scheduled_cached_reqs
        computed |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        rows = [(count, computed[name]) for name, count in step.num_scheduled_tokens.items()]
        assert self.batches is not None
        self.batches.append(Batch.of(rows))
        return step


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
