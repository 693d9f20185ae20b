"""Engines in one process whose linear layers HK computes, in the case's dtype, under what vLLM does
to weights.

Either an engine for each online quantisation; or, if none is asked for, one with LoRA: it is asked
without and with an adapter, then its weights are reloaded from another checkpoint, and it is asked
again.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.integration.hk_vllm.e2e.runner import DEFAULTS, answer, inspect_worker, shut_down
from tests.starts import note_start


def main(case_path: Path, results_path: Path) -> None:
    case = json.loads(case_path.read_text())
    results: dict[str, Any] = {}
    quantization = case.get("quantization", {})
    if not quantization:
        weights(case, results)
    for name, options in quantization.items():
        llm = engine(case, quantization=name, hf_overrides=overrides(options))
        results[name] = asked(llm, case)
        shut_down(llm)
    results_path.write_text(json.dumps(results))


def weights(case: dict[str, Any], results: dict[str, Any]) -> None:
    from vllm.lora.request import LoRARequest

    llm = engine(case, enable_lora=True, max_lora_rank=8)
    results["plain"] = asked(llm, case)
    results["adapted"] = asked(llm, case, lora_request=LoRARequest("adapter", 1, case["adapter"]))
    llm.collective_rpc("reload_weights", kwargs={"weights_path": case["other"]})
    llm.reset_prefix_cache()
    results["reloaded"] = asked(llm, case)
    [worker] = llm.collective_rpc(inspect_worker)
    results["routes"] = worker.routes
    shut_down(llm)


def engine(case: dict[str, Any], **arguments: Any) -> Any:
    from vllm import LLM

    arguments = {**DEFAULTS, "dtype": case["dtype"], **arguments}
    note_start("vLLM, linear")
    return LLM(case["model"], disable_log_stats=False, **arguments)


def overrides(options: dict[str, Any]) -> dict[str, Any]:
    """How a user gives options to `--quantization hk_...`."""
    return {"quantization_config_dict_json": json.dumps(options)}


def asked(llm: Any, case: dict[str, Any], **arguments: Any) -> list[dict[str, Any]]:
    from vllm import SamplingParams

    sampling = SamplingParams(
        temperature=0,
        max_tokens=8,
        ignore_eos=True,
        logprobs=0,  # of a prompt vLLM has none here: with LoRA on a CPU it fails at them
        detokenize=False,
    )
    prompts = [{"prompt_token_ids": tokens} for tokens in case["prompts"]]
    outputs = llm.generate(prompts, sampling, use_tqdm=False, **arguments)
    return [asdict(answer(output)) for output in outputs]
