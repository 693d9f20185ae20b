"""The engines that are served and measured; a file for each says all that is its own."""

from __future__ import annotations

from bench_serving.engines.base import Engine, Load
from bench_serving.engines.sglang import Sglang
from bench_serving.engines.vllm import Vllm

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (Vllm(), Sglang())}

__all__ = ["ENGINES", "Engine", "Load", "Sglang", "Vllm"]
