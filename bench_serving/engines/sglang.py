"""SGLang: its OpenAI server, and its benchmark client `sglang.benchmark.serving`.

Without a GPU SGLang serves through the platform plugin of `bench_serving/sglang_cpu_platform`,
which `make venv-sglang` installs: SGLang's own CPU platform needs a kernel package that is not on
PyPI.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from bench_serving.engines.base import THROUGHPUT, Engine, Load, on_gpu, options
from hk_backend import machine

CPU_PLATFORM = "hk_cpu"
"""Name of the platform plugin, for `SGLANG_PLATFORM`."""


class Sglang(Engine):
    name = "sglang"
    server = "sglang.launch_server"
    client = "sglang.benchmark.serving"
    measures_others = False
    demo = "demo-sglang"
    demo_arguments = (
        "--context-length=2048",
        "--max-total-tokens=16384",
        "--max-running-requests=8",
        "--disable-cuda-graph",  # vLLM's demo serves without torch.compile, too
    )

    def server_arguments(self, model: Path, name: str, dtype: str) -> list[str]:
        settings = {"model-path": model.resolve(), "served-model-name": name, "dtype": dtype}
        device = [] if on_gpu() else ["--device", "cpu"]
        # an idle server's scheduler would otherwise take a core from the one that is measured
        return [*options(settings), *device, "--enable-metrics", "--sleep-on-idle"]

    def environment(self) -> Mapping[str, str]:
        if on_gpu():
            return {}
        # on CPUs SGLang binds its threads with its kernel package only
        threads = {"OMP_NUM_THREADS": str(machine.usable_cores())}
        platforms = entry_points(group="sglang.srt.platforms", name=CPU_PLATFORM)
        return {**threads, "SGLANG_PLATFORM": CPU_PLATFORM} if platforms else threads

    def cores(self, log: str) -> str:
        if "init_cpu_threads_env" in log:  # as in: ... is disabled
            return ""
        return "; ".join(re.findall(r"local_omp_cpuid=(.+)", log))

    def client_arguments(self, load: Load) -> list[str]:
        settings = {
            "backend": "sglang",
            "base-url": load.url,
            "model": load.name,
            "tokenizer": load.tokenizer,
            "dataset-name": "random-ids",
            "random-input-len": load.input_len,
            "random-output-len": load.output_len,
            "random-range-ratio": 1,  # all prompts have this length
            "num-prompts": load.prompts,
            "max-concurrency": load.concurrency,
            "seed": load.seed,
            "warmup-requests": 0,  # a warm-up would be the run's first prompt, then cached
            "output-file": load.result,
        }
        # send ids, not text: a tokenizer may make more tokens of the text
        return [*options(settings), "--tokenize-prompt", "--flush-cache", "--disable-tqdm"]

    def read_result(self, file: Path) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(file.read_text().splitlines()[-1])
        if "total_throughput" in result:
            result[THROUGHPUT] = result.pop("total_throughput")
        return result

    def token_ids(self, reply: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        choice = reply.choices[0]
        return tuple(choice.prompt_token_ids), tuple(choice.response_token_ids)
