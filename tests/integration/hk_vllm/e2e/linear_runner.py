"""Asks one engine without and with a LoRA adapter, and again with reloaded weights.

The new weights come from another checkpoint.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.integration.hk_vllm.e2e.runner import DEFAULTS, answer, inspect_worker, shut_down
from tests.starts import note_start


def main(case_path: Path, results_path: Path) -> None:
    from vllm import LLM
    from vllm.lora.request import LoRARequest

    case, results = json.loads(case_path.read_text()), {}
    note_start("vLLM, linear")
    arguments = DEFAULTS | {"dtype": "float32", "enable_lora": True, "max_lora_rank": 8}
    llm = LLM(case["model"], disable_log_stats=False, **arguments)
    results["plain"] = asked(llm, case)
    results["adapted"] = asked(llm, case, lora_request=LoRARequest("adapter", 1, case["adapter"]))
    llm.collective_rpc("reload_weights", kwargs={"weights_path": case["other"]})
    llm.reset_prefix_cache()
    results["reloaded"] = asked(llm, case)
    [worker] = llm.collective_rpc(inspect_worker)
    results_path.write_text(json.dumps(results | {"routes": worker.routes}))
    shut_down(llm)


def asked(llm: Any, case: dict[str, Any], **arguments: Any) -> list[dict[str, Any]]:
    from vllm import SamplingParams

    sampling = SamplingParams(
        temperature=0,
        max_tokens=8,
        ignore_eos=True,
        logprobs=0,  # none for prompts: with LoRA on a CPU vLLM fails at those
        detokenize=False,
    )
    prompts = [{"prompt_token_ids": tokens} for tokens in case["prompts"]]
    outputs = llm.generate(prompts, sampling, use_tqdm=False, **arguments)
    return [asdict(answer(output)) for output in outputs]
