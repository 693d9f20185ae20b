"""Installs the attention route, once in each of vLLM's processes."""

from __future__ import annotations

from typing import Any

from hk_backend.config import get_config
from hk_backend.engine import loggers
from hk_backend.engine.contract import why_unknown
from hk_backend.engine.patching import wrap
from hk_backend.engine.strict import refuse
from hk_vllm import sleeping
from hk_vllm.contract import check_engine

logger = loggers.of("vllm", "attention")

MEMBERS = {
    "cpu": ("CPU_ATTN",),
    "rocm": ("ROCM_ATTN", "ROCM_AITER_FA", "ROCM_AITER_UNIFIED_ATTN", "TRITON_ATTN"),
}
"""The registry members that HK wraps, by platform."""


def register_attention() -> str:
    """Registers the wrappers of this platform; returns the reason why not, or nothing."""
    from vllm.platforms import current_platform

    if why := why_unknown("vLLM", check_engine()):
        return why
    members = members_of(current_platform)
    if not members:
        return f"no route for vLLM's platform {current_platform.device_name}"
    import hk_vllm.attention.backend  # noqa: F401  so that its errors come before any patch
    from hk_vllm.attention.registry import register_wrappers

    register_wrappers(members)
    watch_selection(type(current_platform), members)
    if current_platform.is_rocm():
        sleeping.install()
    return ""


def members_of(platform: Any) -> tuple[str, ...]:
    """The registry members that HK wraps on `platform`."""
    if platform.is_rocm():
        return MEMBERS["rocm"]
    if not platform.is_cpu():
        return ()
    emulated = get_config().device.startswith("emulated")  # the GPU's backends may serve there
    return MEMBERS["cpu"] + (MEMBERS["rocm"] if emulated else ())


def watch_selection(platform: Any, members: tuple[str, ...] = ()) -> None:
    """Takes part in the choice of a backend, for which vLLM asks `platform`.

    `--attention-backend CUSTOM` wraps the backend that the platform would choose by itself. A layer
    with latent attention, whose backends HK does not wrap, is logged. For `members` HK also wraps
    what another plugin has registered after it.

    The platform's choice depends on the layer (head size, sinks, connectors), which a class behind
    CUSTOM is never told. So CUSTOM asks for the automatic choice, and gets its wrapper.
    """
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    from hk_vllm.attention.registry import has_custom, register_wrappers

    def choose(
        original: Any, selected_backend: Any, attn_selector_config: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if members:
            register_wrappers(members)
        if selected_backend is AttentionBackendEnum.CUSTOM and has_custom():
            selected_backend = None
        found = original(selected_backend, attn_selector_config, *args, **kwargs)
        if getattr(attn_selector_config, "use_mla", False):
            leave_latent_attention()
        return found

    wrap(platform, "get_attn_backend_cls", choose, static=True)


def leave_latent_attention() -> None:
    """Logs once that layers with latent attention are vLLM's.

    Raises:
        StrictError: instead, with HK_STRICT=1.
    """
    said = "hk_backend: layers left to vLLM's attention: %s"
    loggers.info_once(logger, said, refuse("latent attention"))
