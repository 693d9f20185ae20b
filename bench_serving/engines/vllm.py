"""vLLM: its OpenAI server, and its benchmark client `vllm bench serve`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench_serving.engines.base import Engine, Load, core_list, options
from hk_backend import machine


class Vllm(Engine):
    name = "vllm"
    server = "vllm.entrypoints.openai.api_server"
    client = "bench_serving.engines.vllm_client"
    measures_others = True
    demo = "demo"
    demo_arguments = (
        "--enforce-eager",  # without Inductor both servers start in half the time
        "--max-model-len=2048",
        "--kv-cache-memory-bytes=512M",
    )

    def server_arguments(self, model: Path, name: str, dtype: str) -> list[str]:
        return options({"model": model.resolve(), "served-model-name": name, "dtype": dtype})

    def environment(self) -> Mapping[str, str]:
        settings = {"VLLM_NO_USAGE_STATS": "1"}
        if machine.usable_cores() <= 2:
            # by default vLLM keeps one core for its front end and computes on the others
            settings["VLLM_CPU_OMP_THREADS_BIND"] = core_list()
        return settings

    def cores(self, log: str) -> str:
        return "; ".join(re.findall(r"local_rank=\d+, core ids=\[([\d, ]*)\]", log))

    def client_arguments(self, load: Load) -> list[str]:
        settings = {
            "backend": "openai",
            "base-url": load.url,
            "endpoint": "/v1/completions",
            "model": load.name,
            "tokenizer": load.tokenizer,
            "dataset-name": "random",
            "random-input-len": load.input_len,
            "random-output-len": load.output_len,
            "num-prompts": load.prompts,
            "max-concurrency": load.concurrency,
            "seed": load.seed,
            "temperature": 0,
            # llama.cpp ends a connection after each answer, and the client would use it again
            "header": "Connection=close",
            "percentile-metrics": "ttft,tpot,itl,e2el",
            "result-dir": load.result.parent,
            "result-filename": load.result.name,
        }
        return [*options(settings), "--ignore-eos", "--save-result", "--disable-tqdm"]

    def read_result(self, file: Path) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(file.read_text())
        return result

    def token_ids(self, reply: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return tuple(reply.prompt_token_ids), tuple(reply.choices[0].token_ids)
