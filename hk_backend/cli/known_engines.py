"""Facts about the engines that hk_backend has a plugin for, for status and doctor.

No engine is imported. Each plugin's own contract defines what it relies on.
"""

from __future__ import annotations

from dataclasses import dataclass

from hk_backend import machine


@dataclass(frozen=True)
class KnownEngine:
    """One engine.

    `title`: its makers' spelling. `distributions`: names of packages that may contain the engine;
    the first is its own name. `versions`: specifier of the versions that the plugin supports.
    `group`, `plugin`: the entry point by which the engine finds the plugin. `whitelist`: variable
    that names the plugins that the engine may load. `imports`: modules that a server imports at
    once. `serve`: arguments of `python -m` that serve MODEL. `needs_torchvision`: whether the
    engine imports torchvision for any model.
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
        """Version of the installed engine; None: it is not installed."""
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


def installed() -> dict[str, KnownEngine]:
    """The engines that are installed, by name."""
    return {name: engine for name, engine in ENGINES.items() if engine.version is not None}
