"""Candidates of a comparison: an engine, stock or with HK, or llama.cpp.

Each may have its own dtype and quantisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from bench_serving.engines import Engine
from bench_serving.llamacpp.formats import FORMATS, UNQUANTIZED
from bench_serving.server import BACKENDS, LLAMA_CPP, Backend, Server

CONVERTED_FROM = ("auto", "bfloat16")
"""The dtypes of a checkpoint that llama.cpp's files may represent, quantised or not."""


@dataclass(frozen=True)
class Candidate:
    """One of the compared servers, named as `BACKEND[:DTYPE[:QUANTIZATION]]`.

    `dtype`, `quantization`: None: the name leaves them out, and the plan's apply.
    """

    name: str
    backend: Backend
    dtype: str | None = None
    quantization: str | None = None

    @classmethod
    def parse(cls, name: str) -> Candidate:
        """The candidate that `name` describes.

        Raises:
            ValueError: the name begins with no backend, has more than three parts, or names a dtype
                or a format that llama.cpp does not serve.
        """
        backend, *rest = name.split(":")
        if backend not in BACKENDS or len(rest) > 2 or not all(rest):
            raise ValueError(
                f"{name!r} is not BACKEND, BACKEND:DTYPE or BACKEND:DTYPE:QUANTIZATION with "
                f"BACKEND of {', '.join(BACKENDS)}"
            )
        found = cls(name, cast(Backend, backend), *rest)
        if found.is_llama_cpp:
            found.check_dtype("auto")
            quantized = [format for format in FORMATS if format != UNQUANTIZED]
            if found.quantization and found.quantization not in quantized:
                raise ValueError(f"{name!r}: QUANTIZATION of llama.cpp is {' or '.join(quantized)}")
        return found

    @property
    def is_llama_cpp(self) -> bool:
        return self.backend == LLAMA_CPP

    def check_dtype(self, dtype: str) -> None:
        """Check that llama.cpp serves the candidate's dtype, or else the plan's `dtype`.

        Raises:
            ValueError: llama.cpp does not serve the dtype.
        """
        wanted = self.dtype or dtype
        if wanted not in CONVERTED_FROM:
            raise ValueError(
                f"{self.name!r} in {wanted}: llama.cpp serves {' or '.join(CONVERTED_FROM)}, "
                f"named as {LLAMA_CPP}:{CONVERTED_FROM[-1]}"
            )

    def server(
        self, engine: Engine, model: Path, dtype: str, log: Path, arguments: Sequence[str] = ()
    ) -> Server:
        """The engine's server, stock or with HK; settings that the name leaves out are given."""
        if self.quantization:
            arguments = [*arguments, "--quantization", self.quantization]
        return Server(engine, model, self.backend, self.dtype or dtype, log, arguments)
