"""Runs llama.cpp's own OpenAI server over a GGUF file until a signal ends it.

    python -m bench_serving.llamacpp.server --model FILE.gguf --alias NAME --port 8080 \
        --slots 8 --context 1024 [--cores "0, 1"]
"""

from __future__ import annotations

import argparse
import re
import signal

import xllamacpp

from hk_backend import machine

CONTEXT_STEP = 256
"""Number of tokens that the context of each llama.cpp slot is a multiple of."""


def settings(arguments: argparse.Namespace) -> xllamacpp.CommonParams:
    """llama.cpp's default settings, adapted to the load and without the cache of old prompts."""
    found = xllamacpp.CommonParams()
    found.model.path = arguments.model
    found.model_alias = {arguments.alias}
    found.hostnames = [arguments.host]
    found.port = arguments.port
    found.endpoint_metrics = True
    found.ui = False
    found.n_gpu_layers = 0
    found.fit_params = False  # the load decides the context, not the memory
    found.n_parallel = arguments.slots
    found.n_ctx = arguments.slots * -(-arguments.context // CONTEXT_STEP) * CONTEXT_STEP
    found.cache_ram_mib = 0
    cores = [int(core) for core in re.findall(r"\d+", arguments.cores)]
    for threads in (found.cpuparams, found.cpuparams_batch):
        threads.n_threads = len(cores) or machine.usable_cores()
        if cores:
            threads.cpumask = [core in cores for core in range(len(threads.cpumask))]
            threads.mask_valid = threads.strict_cpu = True
    return found


def main() -> None:
    """The command line; see this file's beginning."""
    parser = argparse.ArgumentParser(prog="python -m bench_serving.llamacpp.server")
    parser.add_argument("--model", required=True, help="A GGUF file.")
    parser.add_argument("--alias", required=True, help="What the model is called in requests.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True, help="Requests at a time.")
    parser.add_argument("--context", type=int, required=True, help="Tokens of a request.")
    parser.add_argument("--cores", default="", help="One thread on each; empty: not bound.")
    arguments = parser.parse_args()
    print(xllamacpp.get_system_info(), flush=True)
    print(f"threads on cores [{arguments.cores}]", flush=True)
    server = xllamacpp.Server(settings(arguments))
    print(f"serving at {server.listening_address}", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
