"""Starts a plan's servers side by side: the engine's, then llama.cpp's with the same threads."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from bench_serving.candidates import Candidate
from bench_serving.engines import LlamaCpp
from bench_serving.engines.base import options
from bench_serving.llamacpp.formats import EXTRA, UNQUANTIZED
from bench_serving.plan import ServingPlan
from bench_serving.server import LLAMA_CPP, NOT_BOUND, Server, ServerError
from hk_backend.extras import missing

Tell = Callable[[str], object]


def start(stack: ExitStack, plan: ServingPlan, out: Path, tell: Tell) -> dict[str, Server]:
    """Start a server for each candidate, the engine's first; `stack` ends them and their files.

    Raises:
        ServerError: a server did not start; or llama.cpp is not installed, cannot serve the dtype,
            or its file cannot be written.
        ConvertError: the checkpoint cannot be converted for llama.cpp.
    """
    files = _convert(stack, plan, out, tell)  # before servers start: converting takes every core
    servers: dict[str, Server] = {}
    for candidate in sorted(plan.candidates, key=lambda each: each.is_llama_cpp):
        name = candidate.name
        log = out / "logs" / f"serve-{name.replace(':', '-')}.log"
        if candidate.is_llama_cpp:
            tell(f"starting {LLAMA_CPP}, {files[name].name}")
            cores = next((server.threads() for server in servers.values()), NOT_BOUND)
            server = llama_cpp(candidate, plan, files[name], log, cores)
        else:
            tell(f"starting {plan.engine.title}, {name}, {candidate.dtype or plan.dtype}")
            server = candidate.server(
                plan.engine, plan.model, plan.dtype, log, plan.server_arguments
            )
        servers[name] = stack.enter_context(server)
    return servers


def llama_cpp(candidate: Candidate, plan: ServingPlan, file: Path, log: Path, cores: str) -> Server:
    """llama.cpp's server over a GGUF `file`, for the load of `plan`.

    `cores`: cores to bind threads to, as `Server.threads` lists them.
    """
    load: dict[str, object] = {"slots": max(plan.concurrencies), "context": plan.context}
    if cores != NOT_BOUND:
        load["cores"] = cores
    dtype = candidate.dtype or plan.dtype
    return Server(LlamaCpp(plan.engine), file, candidate.backend, dtype, log, options(load))


def _convert(stack: ExitStack, plan: ServingPlan, out: Path, tell: Tell) -> dict[str, Path]:
    """Write the GGUF file of each llama.cpp candidate; returns the files by candidate."""
    wanting = [candidate for candidate in plan.candidates if candidate.is_llama_cpp]
    if not wanting:
        return {}
    if not plan.engine.measures_others:
        raise ServerError(
            f"{LLAMA_CPP}: {plan.engine.title}'s client speaks an API of its own; "
            "measure with another --engine"
        )
    try:
        for candidate in wanting:
            candidate.check_dtype(plan.dtype)
        importlib.import_module("xllamacpp")
        from bench_serving.llamacpp.convert import write_gguf
    except ValueError as error:
        raise ServerError(str(error)) from None
    except ImportError as error:
        raise ServerError(missing(error, LLAMA_CPP, EXTRA)) from None
    out.mkdir(parents=True, exist_ok=True)
    folder = Path(stack.enter_context(TemporaryDirectory(dir=out, prefix="gguf-")))
    files = {}
    for candidate in wanting:
        format = candidate.quantization or UNQUANTIZED
        files[candidate.name] = folder / f"{plan.model.name}-{format}.gguf"
        tell(f"converting {plan.model.name} to {format}")
        try:
            write_gguf(plan.model, files[candidate.name], format)
        except OSError as error:
            raise ServerError(
                f"cannot write {files[candidate.name]}: {error.strerror or error}"
            ) from None
    return files
