"""llama.cpp, compared with an engine: its own server over GGUF files, and the engine's client."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench_serving.engines.base import Engine, Program, options


@dataclass(frozen=True)
class LlamaCpp(Program):
    """llama.cpp's server. `beside`: the engine that it is compared with."""

    beside: Engine
    server = "bench_serving.llamacpp.server"

    @property
    def title(self) -> str:
        return "llama.cpp"

    def server_arguments(self, model: Path, name: str, dtype: str) -> list[str]:
        """Arguments to serve `model`, a GGUF file with its own types, as `name`; no `dtype`."""
        return options({"model": model.resolve(), "alias": name})

    def environment(self) -> Mapping[str, str]:
        """The environment of the engine beside it, so that both run in the same one."""
        return self.beside.environment()

    def cores(self, log: str) -> str:
        found = re.search(r"^threads on cores \[(.*)\]$", log, re.MULTILINE)
        return found[1] if found else ""
