"""The entry point `vllm.general_plugins`: vLLM calls `register()` in each of its processes."""

from __future__ import annotations

import os


def register() -> None:
    """Installs the routes that `HK_BACKEND` enables.

    Without `HK_BACKEND` nothing is imported and nothing patched. Idempotent, and safe in every
    process. Anything that prevents a route is logged in one line, and vLLM serves without HK.

    Raises:
        RegisterError: instead of that line, with HK_STRICT=1.
    """
    if os.environ.get("HK_BACKEND", "").strip() in ("", "0"):
        return
    from hk_backend.engine import loggers
    from hk_backend.engine.registration import Plugin
    from hk_backend.routing import metrics
    from hk_vllm import ray

    ray.copy_to_workers()
    Plugin("vLLM", loggers.of("vllm", "plugin"), "hk_vllm", metrics.share).register_routes()
