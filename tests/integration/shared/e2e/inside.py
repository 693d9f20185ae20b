"""Runs in an engine's process: reports on the process, and puts faults into it.

A look at a process without HK imports nothing of HK, and neither does the removal of a fault that
was never there.
"""

from __future__ import annotations

import importlib
import os
import sys

from bench_serving.isa import hide_instruction_sets
from tests.integration.shared.e2e.scenario import Worker

MUTATIONS = "tests.integration.shared.e2e.mutations"
OWN = ("hk_backend", "hk_vllm", "hk_sglang")


def hide_instructions() -> None:
    """Hide AMX, and instructions beyond the set that the tests are held to, from the engine.

    Where AMX traps (hk_backend/machine.py) stock vLLM dies in bfloat16, and elsewhere HK leaves
    bfloat16 to the engine; neither has a switch.
    """
    import torch

    hide_instruction_sets()
    if os.environ.get("TEST_HIDE_AMX") == "1":
        torch.cpu._is_amx_tile_supported = lambda: False


def look(layers: int) -> Worker:
    """This process's report; its model has so many attention layers."""
    routing, mutations = sys.modules.get("hk_backend.routing.routes"), sys.modules.get(MUTATIONS)
    return Worker(
        routes={} if routing is None else routing.routes.report(),
        launches=launches(),
        modules=sorted(name for name in sys.modules if name.startswith(OWN)),
        layers=layers,
        mutated_calls=0 if mutations is None else mutations.mutated_calls,
    )


def launches() -> dict[str, int]:
    """Number of times that the emulator ran each kernel, if this process has one."""
    emulated = sys.modules.get("hk_backend.devices.hip.emulated")
    if emulated is None or not emulated.emulated_device.cache_info().currsize:
        return {}
    kernels = emulated.emulated_device("gfx950").library.report()["kernels"]
    return {name: runs["launches"] for name, runs in kernels.items()}


def install_mutation(name: str) -> None:
    """Put this fault under the plugin; an empty name heals it."""
    if name or MUTATIONS in sys.modules:
        importlib.import_module(MUTATIONS).install(name)
