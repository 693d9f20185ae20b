"""The engines that hk_backend has a plugin for: what status and doctor must know about them.

No engine is imported; what a plugin relies on is defined in the plugin's own contract.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hk_backend import machine


@dataclass(frozen=True)
class KnownEngine:
    """One engine.

    `title`: as its makers write it. `distributions`: those that may hold it; the first is its own
    name. `versions`: the specifier of those that the plugin knows. `group`, `plugin`: the entry
    point by which it finds the plugin. `whitelist`: the variable that names the plugins it may
    load. `imports`: the modules of it and its that a server needs at once. `serve`: what follows
    `python -m` to serve MODEL. `needs_torchvision`: whether it imports torchvision for any model.
    """

    title: str
    distributions: tuple[str, ...]
    versions: str
    group: str
    plugin: str
    whitelist: str
    imports: str
    serve: str
    needs_torchvision: bool

    @property
    def version(self) -> str | None:
        """The installed one's; None: it is not installed."""
        return machine.version_of(*self.distributions)


ENGINES = {
    "vllm": KnownEngine(
        title="vLLM",
        distributions=machine.ENGINES["vLLM"],
        versions=">=0.29,<0.34",
        group="vllm.general_plugins",
        plugin="hk_vllm",
        whitelist="VLLM_PLUGINS",
        imports="vllm, vllm.v1.attention.backend, transformers",
        serve="vllm.entrypoints.openai.api_server --model MODEL",
        needs_torchvision=False,
    ),
    "sglang": KnownEngine(
        title="SGLang",
        distributions=machine.ENGINES["SGLang"],
        versions=">=0.5.22",
        group="sglang.srt.plugins",
        plugin="hk_sglang",
        whitelist="SGLANG_PLUGINS",
        imports="sglang, sglang.srt.server_args, sglang.srt.layers.attention, transformers",
        serve="sglang.launch_server --model-path MODEL",
        needs_torchvision=True,
    ),
}


def installed() -> Sequence[KnownEngine]:
    """Those that are installed."""
    return [engine for engine in ENGINES.values() if engine.version is not None]
