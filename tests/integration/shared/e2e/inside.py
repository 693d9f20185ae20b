"""Runs in an engine's process: what it says of itself, and what is broken in it.

Nothing of HK is imported by looking, or by healing where nothing was hurt.
"""

from __future__ import annotations

import importlib
import os
import sys

from bench_serving.isa import hide
from tests.integration.shared.e2e.scenario import Worker

MUTATIONS = "tests.integration.shared.e2e.mutations"
OWN = ("hk_backend", "hk_vllm", "hk_sglang")


def hide_instructions() -> None:
    """From the engine: what lies beyond the instruction set that the tests are held to, and AMX.

    Where AMX traps (hk_backend/machine.py) stock vLLM dies in bfloat16, and elsewhere HK leaves
    bfloat16 to the engine; neither has a switch.
    """
    import torch

    hide()
    if os.environ.get("TEST_HIDE_AMX") == "1":
        torch.cpu._is_amx_tile_supported = lambda: False


def look(layers: int) -> Worker:
    """This process, whose model has so many attention layers."""
    routing, mutations = sys.modules.get("hk_backend.routing.routes"), sys.modules.get(MUTATIONS)
    return Worker(
        routes={} if routing is None else routing.routes.report(),
        launches=launches(),
        modules=sorted(name for name in sys.modules if name.startswith(OWN)),
        layers=layers,
        mutated_calls=0 if mutations is None else mutations.mutated_calls,
    )


def launches() -> dict[str, int]:
    """How often the emulator ran each kernel, if there is one in this process."""
    emulated = sys.modules.get("hk_backend.devices.hip.emulated")
    if emulated is None or not emulated.emulated_device.cache_info().currsize:
        return {}
    kernels = emulated.emulated_device("gfx950").library.report()["kernels"]
    return {name: runs["launches"] for name, runs in kernels.items()}


def install_mutation(name: str) -> None:
    """Put this fault under the plugin; an empty name heals it."""
    if name or MUTATIONS in sys.modules:
        importlib.import_module(MUTATIONS).install(name)
