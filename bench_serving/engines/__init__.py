"""The engines that are served and measured, each described by a file of its own."""

from __future__ import annotations

from bench_serving.engines.base import Engine, Load, Program
from bench_serving.engines.llamacpp import LlamaCpp
from bench_serving.engines.sglang import Sglang
from bench_serving.engines.vllm import Vllm

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (Vllm(), Sglang())}

__all__ = ["ENGINES", "Engine", "LlamaCpp", "Load", "Program", "Sglang", "Vllm"]
