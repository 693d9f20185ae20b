"""What is compared: an engine stock and with HK, in a dtype and with a quantisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from bench_serving.engines import Engine
from bench_serving.server import BACKENDS, Backend, Server


@dataclass(frozen=True)
class Candidate:
    """One of the servers that are compared, as `BACKEND[:DTYPE[:QUANTIZATION]]` names it.

    `dtype`, `quantization`: None if the name leaves them out; then they are the plan's.
    """

    name: str
    backend: Backend
    dtype: str | None = None
    quantization: str | None = None

    @classmethod
    def parse(cls, name: str) -> Candidate:
        """
        Raises:
            ValueError: it begins with no backend, or has more than three parts.
        """
        backend, *rest = name.split(":")
        if backend not in BACKENDS or len(rest) > 2 or not all(rest):
            raise ValueError(
                f"{name!r} is not BACKEND, BACKEND:DTYPE or BACKEND:DTYPE:QUANTIZATION with "
                f"BACKEND of {', '.join(BACKENDS)}"
            )
        return cls(name, cast(Backend, backend), *rest)

    def server(
        self, engine: Engine, model: Path, dtype: str, log: Path, arguments: Sequence[str] = ()
    ) -> Server:
        """Its server; what is not in its name is the plan's."""
        if self.quantization:
            arguments = [*arguments, "--quantization", self.quantization]
        return Server(engine, model, self.backend, self.dtype or dtype, log, arguments)
